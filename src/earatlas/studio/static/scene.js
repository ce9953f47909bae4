// Scene page: place talkers around the head, render and separate them, and compare with the truth.

import { fileAddress, pollJob, post, upload } from "./api.js";
import { angleSlider, el, icon, setSliders, formatDirection, setContent, sourceColour } from "./dom.js";
import { Player } from "./player.js";
import { failure, RecordingPage } from "./recording.js";
import { Sphere } from "./sphere.js";

const VOICES = ["Ada", "Hugh", "Robin", "Vera"];
const DIRECTIONS = [[41, 1], [-64, 24], [5, -20], [150, 30]];
const ROOMS = [["", "none (anechoic)"], ["0.2", "small room, T60 0.2 s"], ["0.3", "living room, T60 0.3 s"], ["0.6", "empty room, T60 0.6 s"]];
const NOISES = [["60", "none"], ["30", "weak, SNR 30 dB"], ["15", "moderate, SNR 15 dB"], ["5", "strong, SNR 5 dB"]];
const MAX_TALKERS = 4;
const RATE = 16000; // Hz

export function mount(root, app) {
  const page = new ScenePage(root, app);
  app.page = page;
  page.showPlan();
  return () => page.leave();
}

class ScenePage extends RecordingPage {
  showPlan(error = null) {
    this.leave();
    this.app.plan ??= { talkers: [0, 1].map(talker), t60: "", snr: "30" };
    const { plan } = this.app;
    this.plan = plan;
    const canvas = el("canvas", { class: "sphere tall", tabindex: 0, role: "img", "aria-label": "Talkers on a sphere around the head. The sliders move them, too." });
    this.list = el("div", { class: "sources" });
    const room = el("select", { onchange: () => { plan.t60 = room.value; } }, ROOMS.map(([value, label]) => el("option", { value, selected: value === plan.t60 }, label)));
    const noise = el("select", { onchange: () => { plan.snr = noise.value; } }, NOISES.map(([value, label]) => el("option", { value, selected: value === plan.snr }, label)));
    setContent(this.root, error ? failure(error) : null,
      el("header", { class: "result" }, el("div", {}, el("h1", {}, "Make a scene"),
        el("p", { class: "note" }, "Drag the talkers around the head; dragged across the rim, they move to the other side. The result is compared with the true directions."))),
      el("div", { class: "result-grid" },
        el("section", { class: "card", "aria-label": "Directions" }, canvas, el("ul", { class: "key" }, el("li", {}, "drag a talker: move it"), el("li", {}, "drag the sphere or arrow keys: rotate it"))),
        el("div", { class: "side" }, this.list,
          el("section", { class: "card", "aria-label": "Room and noise" },
            el("p", { class: "fields" }, el("label", {}, "Room ", room), el("label", {}, "Noise ", noise)),
            this.headNote = el("p", { class: "note" }),
            el("p", { class: "choices spaced" }, el("button", { class: "main", onclick: () => this.separate() }, icon("again"), "Render and separate"),
              this.listenButton = el("button", { onclick: () => this.listen() }, icon("play"), "Listen"))))));
    this.sphere = new Sphere(canvas, { drags: { moved: (item) => this.moved(item), chosen: (item) => this.choose(item) } });
    this.parts.push(this.sphere);
    this.showTalkers();
    this.headChanged();
  }

  headChanged() {
    const { selected } = this.app.choice;
    if (this.headNote) this.headNote.textContent = selected?.can_render ? "" : `${selected ? `The head “${selected.name}”` : "This head"} has no measured responses: the scene is rendered and separated with the simulated head.`;
  }

  showTalkers() {
    const { talkers } = this.plan;
    const items = talkers.map((one, m) => ({ ...sourceColour(m + 1), direction: one.direction, label: String(m + 1), name: one.name, talker: one }));
    this.sphere.set({ items });
    this.outputs = [];
    setContent(this.list, talkers.map((one, m) => this.talkerCard(one, m, items[m])),
      talkers.length < MAX_TALKERS ? el("p", { class: "choices spaced" }, el("button", { onclick: () => this.add() }, "Add a talker")) : null);
  }

  talkerCard(one, m, item) {
    const slider = (axis, name) => angleSlider(axis, `${name} of ${one.name}`,
      (value) => { one.direction = one.direction.map((v, i) => (i === axis ? value : v)); item.direction = one.direction; this.updateTalker(m); this.sphere.draw(); });
    const [azimuth, elevation] = [slider(0, "Azimuth"), slider(1, "Elevation")];
    setSliders([azimuth, elevation], one.direction);
    const text = el("p", { class: "note" }, formatDirection(one.direction));
    this.outputs[m] = { azimuth, elevation, text };
    const voice = el("select", { "aria-label": `Voice of talker ${m + 1}`, onchange: () => (voice.value === "file" ? file.click() : this.setVoice(m, Number(voice.value))) },
      VOICES.map((name, i) => el("option", { value: i, selected: one.voice === i }, name)), one.sound === undefined ? null : el("option", { value: "", selected: true }, one.name), el("option", { value: "file" }, "your own file …"));
    const file = el("input", { type: "file", class: "visually-hidden", accept: "audio/*,.wav,.flac,.ogg,.aiff", tabindex: -1, "aria-hidden": "true", onchange: () => file.files.length && this.setSound(m, file.files[0]) });
    return el("section", { class: "card source", style: { "--colour": item.colour, "--on": item.on }, "aria-label": `Talker ${m + 1}` },
      el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(m + 1)), el("div", { class: "grow" }, voice, file, text),
        el("div", { class: "sliders" }, el("label", {}, el("span", {}, "↔"), azimuth), el("label", {}, el("span", {}, "↕"), elevation)),
        this.plan.talkers.length > 1 ? el("button", { class: "toggle", "aria-label": `Remove talker ${m + 1}`, onclick: () => { this.plan.talkers.splice(m, 1); this.showTalkers(); } }, "Remove") : null));
  }

  updateTalker(m) {
    const { azimuth, elevation, text } = this.outputs[m];
    const { direction } = this.plan.talkers[m];
    setSliders([azimuth, elevation], direction);
    text.textContent = formatDirection(direction);
  }

  moved(item) {
    item.talker.direction = item.direction;
    this.updateTalker(this.plan.talkers.indexOf(item.talker));
  }

  choose(item) { for (const one of this.sphere.items) one.chosen = one === item; }

  add() {
    const used = new Set(this.plan.talkers.map((one) => one.voice));
    this.plan.talkers.push(talker([0, 1, 2, 3].find((i) => !used.has(i)) ?? 0));
    this.showTalkers();
  }

  setVoice(m, i) { Object.assign(this.plan.talkers[m], { voice: i, name: VOICES[i] }); delete this.plan.talkers[m].sound; this.showTalkers(); }

  async setSound(m, file) {
    try {
      const { sound, name } = await upload("sounds", file, { name: file.name });
      Object.assign(this.plan.talkers[m], { sound, name, voice: undefined });
      this.showTalkers();
    } catch (error) { this.showPlan(error.message); }
  }

  // A dropped file becomes a talker.
  dropped(file) {
    if (this.player || !this.list) return false;
    if (this.plan.talkers.length < MAX_TALKERS) this.plan.talkers.push(talker(this.plan.talkers.length));
    this.setSound(this.plan.talkers.length - 1, file);
    return true;
  }

  get backText() { return "Change the scene"; }

  get head() { return this.app.choice.selected?.can_render ? this.app.head : "simulated"; }

  render() {
    const { talkers, t60, snr } = this.plan;
    return post("scenes", {
      name: talkers.map((one) => one.name).join(" and "),
      head: this.head, t60_seconds: t60 ? Number(t60) : null, snr_db: Number(snr),
      talkers: talkers.map((one) => ({ voice: one.voice, sound: one.sound, azimuth: one.direction[0], elevation: one.direction[1] })),
    });
  }

  async separate() {
    try {
      const rendered = await this.render();
      const job = await this.follow(rendered.job, rendered.name);
      if (job.state !== "done") return;
      const separation = await post(`recordings/${rendered.recording}/separate`, { head: this.head });
      await this.watch(rendered.recording, separation.job, rendered.name);
    } catch (error) { this.showPlan(error.message); }
  }

  // Render and play the mixture, without leaving the page.
  async listen() {
    if (this.trial) { this.trial.close(); this.trial = null; this.listenButton.lastChild.textContent = "Listen"; return; }
    const button = this.listenButton;
    button.disabled = true;
    button.lastChild.textContent = "Rendering …";
    try {
      const rendered = await this.render();
      const job = await pollJob(rendered.job, () => {});
      if (job.state !== "done") throw new Error(job.error);
      const trial = new Player(RATE);
      await trial.load([fileAddress(rendered.recording, job.result.files.mixture)]);
      if (button !== this.listenButton || !button.isConnected) { trial.close(); return; }
      this.trial = trial;
      this.parts.push(trial);
      trial.changed = () => { if (!trial.playing && this.trial === trial) { this.trial = null; button.lastChild.textContent = "Listen"; } };
      button.lastChild.textContent = "Stop";
      await trial.play();
    } catch (error) { this.showPlan(error.message); }
    button.disabled = false;
  }

  begin() { this.showPlan(); }
  empty(error = null) { this.showPlan(error); }
  setAddress() {} // the address stays that of this page
}

function talker(i) { return { voice: i, name: VOICES[i], direction: DIRECTIONS[i] }; }

