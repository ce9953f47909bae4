// Live: sources appear on the sphere, move and fade; one of them can be heard, and all recorded.

import { socket } from "./api.js";
import { el, icon, say, show } from "./dom.js";
import { wavFile } from "./player.js";
import { captured } from "./record.js";
import { disc, failure } from "./recording.js";
import { Sphere } from "./sphere.js";

const RATE = 16000; // Hz: what cues need, and half the work of 48000
const FADE = 20; // seconds after which a source that is silent is as faint as can be
const TRAIL = 40; // places that are remembered
const LEAD = 0.12; // seconds that monitored sound waits, so that it has no gaps
const MOST = 300; // seconds that are recorded

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
  }

  close() {
    this.ended = true;
    this.input?.close();
    this.socket?.close();
    this.output?.close();
    this.ball?.close();
    this.input = this.socket = this.output = this.ball = null;
  }

  // What is being recorded is not lost: it is taken apart when its page is opened.
  leave() {
    if (this.recorded?.length) this.app.pending = this.file();
    this.recorded = null;
    this.close();
  }

  idle(error = null) {
    if (this.recorded?.length) { location.hash = "recording"; return; } // which leaves this page
    this.close();
    show(this.root, error ? failure(error) : null,
      el("section", { class: "card drop" }, el("h1", {}, "Listen live"),
        el("p", { class: "lead" }, "Sounds appear around the head as they are heard, and fade when they fall silent."),
        el("p", { class: "choices" }, el("button", { class: "main", onclick: () => this.start() }, icon("record"), "Listen")),
        el("p", { class: "note" }, "Needs an input with two channels: a microphone in each ear of the head that is chosen above.")));
  }

  async start() {
    this.ended = this.ready = false;
    this.recorded = null;
    this.sources = new Map();
    this.monitored = null;
    show(this.root, el("section", { class: "card drop busy" }, el("h1", {}, "Getting ready"), el("progress", { "aria-label": "Progress" }), el("p", { class: "note" }, "The browser may ask whether the microphones may be used."),
      el("p", { class: "choices" }, el("button", { onclick: () => this.idle() }, "Cancel"))));
    try {
      this.input = await captured((left, right) => this.heard(left, right), RATE);
    } catch (error) { return this.idle(error.message); }
    if (this.ended) return this.close();
    this.rate = this.input.rate;
    this.socket = socket(`live?head=${encodeURIComponent(this.app.head)}&rate=${Math.round(this.rate)}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.told(JSON.parse(data)) : this.sound(data));
    this.socket.onclose = (event) => { if (!this.ended) this.idle(event.reason || "The studio no longer listens."); };
    return undefined;
  }

  heard(left, right) {
    if (this.recorded && this.count < MOST * this.rate) { this.recorded.push([left, right]); this.count += left.length; }
    if (this.socket?.readyState !== WebSocket.OPEN || !this.ready) return;
    const block = new Float32Array(2 * left.length);
    for (let i = 0; i < left.length; i += 1) { block[2 * i] = left[i]; block[2 * i + 1] = right[i]; }
    this.socket.send(block);
  }

  told(message) {
    if (message.error || message.bug) { const words = message.error ?? "Listening failed, which is a bug of earatlas."; this.idle(words); return; }
    if (message.ready) { this.ready = true; this.listening(); return; }
    this.clock.textContent = `${message.time.toFixed(1)} s`;
    const late = message.left_out_seconds;
    show(this.notes, [...message.doubts, ...(late > 0.1 ? [`this computer is too slow for it: ${late.toFixed(1)} s were left out`] : [])].map((note) => el("li", {}, note)));
    this.notes.hidden = !this.notes.children.length;
    const alive = new Set(message.sources.map((source) => source.id));
    for (const id of this.sources.keys()) if (!alive.has(id)) { this.sources.get(id).card.remove(); this.sources.delete(id); }
    for (const source of message.sources) this.source(source);
    this.none.hidden = this.sources.size > 0;
    this.ball.set({ items: [...this.sources.values()].map(({ item }) => item) });
  }

  listening() {
    const canvas = el("canvas", { class: "sphere tall", tabindex: 0, role: "img", "aria-label": "The head in a sphere, and who is heard around it; arrow keys turn it" });
    this.clock = el("span", { class: "clock" }, "0.0 s");
    this.notes = el("ul", { class: "doubts", hidden: true });
    this.list = el("div", { class: "sources" });
    this.none = el("section", { class: "card" }, el("p", { class: "note" }, "Nobody is heard yet. Speak, or make a sound beside the head."));
    this.button = el("button", { class: "toggle", "aria-pressed": "false", onclick: () => this.record() }, icon("record"), "Record");
    show(this.root, el("div", { class: "result-grid" },
      el("section", { class: "card", "aria-label": "Who is where" }, canvas, el("ul", { class: "key" }, el("li", {}, "dark: 50 % region, pale: 90 %"), el("li", {}, "faint: silent for a while"))),
      el("div", { class: "side" },
        el("section", { class: "card transport", "aria-label": "Listening" }, el("b", {}, "Listening"), this.clock, this.button,
          this.stop = el("button", { onclick: () => this.idle() }, icon("stop"), "Stop")),
        this.notes, this.none, this.list)));
    this.ball = new Sphere(canvas);
    this.app.sphere = this.ball;
    say("Listening");
  }

  source(told) {
    let known = this.sources.get(told.id);
    if (!known) {
      known = this.card(told);
      this.sources.set(told.id, known);
      this.list.append(known.card);
      say(`Source ${told.id}, ${told.words}`);
    }
    const { item } = known;
    if (told.active) { item.trail.push(told.direction); item.trail.splice(0, item.trail.length - TRAIL); }
    item.direction = told.direction;
    item.region = disc(told.direction, told.radius_90);
    item.faint = told.active ? 1 : Math.max(0.25, 0.8 - told.age / FADE);
    known.card.classList.toggle("quiet", !told.active);
    known.place.textContent = told.words;
    known.note.textContent = [told.sure, told.active ? null : `silent for ${told.age.toFixed(0)} s`].filter(Boolean).join(" · ");
    known.meter.value = told.active ? Math.max(-60, told.level_db ?? -60) : -60;
    known.doubts.textContent = told.doubts.join("; ");
    known.doubts.hidden = !told.doubts.length;
  }

  card(told) {
    const place = el("p", { class: "place" }), note = el("p", { class: "note" }), doubts = el("p", { class: "doubts" });
    const meter = el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": `Level of source ${told.id}` });
    const hear = el("button", { class: "toggle", "aria-pressed": "false", "aria-label": `Hear source ${told.id} through headphones`, onclick: () => this.monitor(told.id) }, "Hear");
    const card = el("section", { class: "card source", style: { "--colour": told.colour, "--on": told.on_colour }, "aria-label": `Source ${told.id}` },
      el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(told.id)), el("div", { class: "grow" }, place, note, meter), hear), doubts);
    const item = { direction: told.direction, colour: told.colour, on: told.on_colour, label: String(told.id), name: `Source ${told.id}`, trail: [] };
    return { card, place, note, meter, doubts, hear, item };
  }

  // --- hearing one, recording all --------------------------------------------------------------

  monitor(id) {
    this.monitored = this.monitored === id ? null : id;
    for (const [other, { hear }] of this.sources) hear.setAttribute("aria-pressed", String(other === this.monitored));
    this.output ??= new AudioContext({ sampleRate: this.rate });
    this.output.resume();
    this.next = 0;
    this.socket.send(JSON.stringify({ monitor: this.monitored }));
  }

  sound(data) {
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
    this.stop.lastChild.textContent = "Stop, and take it apart";
  }

  file() {
    const channels = [0, 1].map((c) => { const whole = new Float32Array(this.count); let at = 0; for (const block of this.recorded) { whole.set(block[c], at); at += block[c].length; } return whole; });
    return wavFile(channels, this.rate);
  }
}

