// Live page: sources appear on the sphere, move and fade; one can be played, and all be recorded.

import { socket } from "./api.js";
import { DeviceChoice, EarMeters } from "./devices.js";
import { el, icon, announce, prose, setContent } from "./dom.js";
import { History } from "./history.js";
import { pictureMenu } from "./pictures.js";
import { wavFile } from "./player.js";
import { capture } from "./record.js";
import { disc, failure } from "./recording.js";
import { Sphere } from "./sphere.js";

const RATE = 16000; // Hz: enough for the cues, with half the work of 48000
const FADE = 20; // seconds of silence until a source is drawn as faint as possible
const TRAIL = 40; // previous directions that are drawn
const LEAD = 0.12; // seconds of delay of the monitored sound, to avoid gaps
const MAX_SECONDS = 300; // of a recording

export function mount(root, app) {
  const page = new LivePage(root, app);
  app.page = page;
  page.idle();
  return () => page.leave();
}

class LivePage {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.device = ""; // id of the input; by default the browser chooses one
  }

  close() {
    this.ended = true;
    this.input?.close();
    this.socket?.close();
    this.output?.close();
    this.sphere?.close();
    this.history?.close();
    this.choice?.close();
    this.input = this.socket = this.output = this.sphere = this.history = this.choice = null;
  }

  // A recording is not lost: it is separated when the page of recordings is opened.
  leave() {
    if (this.recorded?.length) this.app.pending = this.file();
    this.recorded = null;
    this.close();
  }

  idle(error = null) {
    if (this.recorded?.length) { location.hash = "recording"; return; } // this unmounts the page
    this.close();
    this.choice = new DeviceChoice(this.device, (device) => { this.device = device; });
    setContent(this.root, error ? failure(error) : null,
      el("section", { class: "card drop" }, el("h1", {}, "Listen live"),
        el("p", { class: "lead" }, "Sounds appear around the head when they are detected, and fade when they are silent."),
        el("p", { class: "choices" }, el("button", { class: "main", onclick: () => this.start() }, icon("record"), "Listen"), this.choice.label),
        el("p", { class: "note" }, "Needs an input with two channels: one microphone in each ear of the head selected above.")));
  }

  async start() {
    this.ended = this.ready = false;
    this.recorded = null;
    this.sources = new Map();
    this.monitored = null;
    setContent(this.root, el("section", { class: "card drop busy" }, el("h1", {}, "Starting"), el("progress", { "aria-label": "Progress" }), el("p", { class: "note" }, "The browser may ask for permission to use the microphones."),
      el("p", { class: "choices" }, el("button", { onclick: () => this.idle() }, "Cancel"))));
    try {
      this.input = await this.openInput();
    } catch (error) { return this.idle(error.message); }
    if (this.ended) return this.close();
    this.rate = this.input.rate;
    this.socket = socket(`live?head=${encodeURIComponent(this.app.head)}&rate=${Math.round(this.rate)}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.receive(JSON.parse(data)) : this.play(data));
    this.socket.onclose = (event) => { if (!this.ended) this.idle(event.reason || "The connection to the studio was closed."); };
    return undefined;
  }

  openInput() {
    this.meters = new EarMeters();
    return capture((left, right) => this.sendBlock(left, right), RATE, this.device);
  }

  // Change the input while listening; tracks and the recording continue.
  async changeInput(device) {
    this.device = device;
    const old = this.input, meters = this.meters;
    this.input = null;
    await old?.close();
    try {
      const input = await capture((left, right) => this.sendBlock(left, right), RATE, device);
      if (this.ended) { input.close(); return; }
      this.input = input;
      this.meters = meters;
      if (input.rate !== this.rate) this.idle("This input has another sampling rate. Start again.");
      else announce("The input was changed.");
    } catch (error) { if (!this.ended) this.idle(error.message); }
  }

  sendBlock(left, right) {
    this.meters?.update(left, right, this.rate ?? RATE);
    if (this.recorded && this.count < MAX_SECONDS * this.rate) { this.recorded.push([left, right]); this.count += left.length; }
    if (this.socket?.readyState !== WebSocket.OPEN || !this.ready) return;
    const block = new Float32Array(2 * left.length);
    for (let i = 0; i < left.length; i += 1) { block[2 * i] = left[i]; block[2 * i + 1] = right[i]; }
    this.socket.send(block);
  }

  receive(message) {
    if (message.error || message.bug) { this.idle(message.error ?? "Listening failed because of a bug in earatlas."); return; }
    if (message.ready) { this.ready = true; this.showListening(); return; }
    this.clock.textContent = `${message.time.toFixed(1)} s`;
    const dropped = message.dropped_seconds;
    setContent(this.notes, [...message.doubts, ...(dropped > 0.1 ? [`this computer is too slow: ${dropped.toFixed(1)} s of sound were dropped`] : [])].map((note) => el("li", {}, prose(note))));
    this.notes.hidden = !this.notes.children.length;
    const alive = new Set(message.sources.map((source) => source.id));
    for (const id of this.sources.keys()) if (!alive.has(id)) { this.sources.get(id).card.remove(); this.sources.delete(id); }
    for (const source of message.sources) this.updateSource(source);
    this.none.hidden = this.sources.size > 0;
    this.sphere.set({ items: [...this.sources.values()].map(({ item }) => item) });
    this.history.add(message.time, message.sources);
  }

  showListening() {
    const canvas = el("canvas", { class: "sphere tall", tabindex: 0, role: "img", "aria-label": "Sphere around the head with the detected sources; arrow keys rotate it" });
    this.clock = el("span", { class: "clock" }, "0.0 s");
    this.choice?.close();
    this.choice = new DeviceChoice(this.device, (device) => this.changeInput(device));
    this.history?.close();
    this.history = new History();
    this.notes = el("ul", { class: "doubts", hidden: true });
    this.list = el("div", { class: "sources" });
    this.none = el("section", { class: "card" }, el("p", { class: "note" }, "No source detected yet. Speak, or make a sound near the head."));
    this.button = el("button", { class: "toggle", "aria-pressed": "false", onclick: () => this.record() }, icon("record"), "Record");
    setContent(this.root, el("div", { class: "result-grid" },
      el("section", { class: "card", "aria-label": "Directions" }, canvas, el("ul", { class: "key" }, el("li", {}, "strong colour: 50 % region, pale: 90 % region"), el("li", {}, "faint: silent")),
        pictureMenu(() => [{ name: "Sphere", title: "Live directions", parts: [{ canvas }], draw: () => this.sphere.paint(), legend: [...this.sources].map(([id, { item, place }]) => ({ colour: item.colour, name: `${id}: ${place.textContent}` })) }])),
      el("div", { class: "side" },
        el("section", { class: "card transport", "aria-label": "Listening" }, el("h1", {}, "Listening"), this.clock, this.button,
          this.stop = el("button", { onclick: () => this.idle() }, icon("stop"), "Stop"), this.choice.label),
        this.meters.card, this.notes, this.none, this.list)), this.history.card);
    this.sphere = new Sphere(canvas);
    this.app.sphere = this.sphere;
    announce("Listening");
  }

  updateSource(source) {
    let known = this.sources.get(source.id);
    if (!known) {
      known = this.createCard(source);
      this.sources.set(source.id, known);
      this.list.append(known.card);
      announce(`Source ${source.id}, ${source.place}`);
    }
    const { item } = known;
    item.unknown = !source.known;
    if (source.active && source.known) { item.trail.push(source.direction); item.trail.splice(0, item.trail.length - TRAIL); }
    item.direction = source.direction;
    item.alternatives = source.alternative_directions;
    item.region = disc(source.direction, source.radius_90);
    item.faint = source.active ? 1 : Math.max(0.25, 0.8 - source.age / FADE);
    known.card.classList.toggle("quiet", !source.active);
    known.place.textContent = source.place;
    known.note.textContent = [source.alternatives_text, source.uncertainty, source.active ? null : `silent for ${source.age.toFixed(0)} s`].filter(Boolean).join(" · ");
    known.meter.value = source.active ? Math.max(-60, source.level_db ?? -60) : -60;
    setContent(known.doubts, prose(source.doubts.join("; ")));
    known.doubts.hidden = !source.doubts.length;
  }

  createCard(source) {
    const place = el("p", { class: "place" }), note = el("p", { class: "note" }), doubts = el("p", { class: "doubts" });
    const meter = el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": `Level of source ${source.id}` });
    const toggle = el("button", { class: "toggle", "aria-pressed": "false", "aria-label": `Play source ${source.id} (use headphones)`, onclick: () => this.monitor(source.id) }, "Play");
    const card = el("section", { class: "card source", style: { "--colour": source.colour, "--on": source.text_colour }, "aria-label": `Source ${source.id}` },
      el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(source.id)), el("div", { class: "grow" }, place, note, meter), toggle), doubts);
    const item = { direction: source.direction, colour: source.colour, on: source.text_colour, label: String(source.id), name: `Source ${source.id}`, trail: [] };
    return { card, place, note, meter, doubts, toggle, item };
  }

  // --- monitoring and recording ----------------------------------------------------------------

  monitor(id) {
    this.monitored = this.monitored === id ? null : id;
    for (const [other, { toggle }] of this.sources) toggle.setAttribute("aria-pressed", String(other === this.monitored));
    this.output ??= new AudioContext({ sampleRate: this.rate });
    this.output.resume();
    this.next = 0;
    this.socket.send(JSON.stringify({ monitor: this.monitored }));
  }

  play(data) {
    if (!this.output || this.monitored === null) return;
    const samples = new Float32Array(data), n = samples.length / 2;
    const buffer = new AudioBuffer({ length: n, numberOfChannels: 2, sampleRate: this.rate });
    for (const c of [0, 1]) buffer.copyToChannel(samples.filter((_, i) => i % 2 === c), c);
    const source = new AudioBufferSourceNode(this.output, { buffer });
    source.connect(this.output.destination);
    if (this.next < this.output.currentTime) this.next = this.output.currentTime + LEAD;
    source.start(this.next);
    this.next += buffer.duration;
  }

  record() {
    this.recorded = [];
    this.count = 0;
    this.button.setAttribute("aria-pressed", "true");
    this.button.disabled = true;
    this.button.lastChild.textContent = "Recording";
    this.stop.lastChild.textContent = "Stop and separate";
  }

  file() {
    const channels = [0, 1].map((c) => { const whole = new Float32Array(this.count); let at = 0; for (const block of this.recorded) { whole.set(block[c], at); at += block[c].length; } return whole; });
    return wavFile(channels, this.rate);
  }
}

