// Make a scene: talkers are dragged around the head, heard, and taken apart; truth beside found.

import { fileOf, followed, post, upload } from "./api.js";
import { angleSlider, el, icon, placeSliders, placeWords, show } from "./dom.js";
import { Player } from "./player.js";
import { failure, RecordingPage } from "./recording.js";
import { Sphere } from "./sphere.js";

const VOICES = ["Ada", "Hugh", "Robin", "Vera"];
const PLACES = [[41, 1], [-64, 24], [5, -20], [150, 30]];
const ROOMS = [["", "in the open"], ["0.2", "a small room, T60 0.2 s"], ["0.3", "a living room, T60 0.3 s"], ["0.6", "a bare room, T60 0.6 s"]];
const NOISES = [["60", "none"], ["30", "hardly any, 30 dB below"], ["15", "some, 15 dB below"], ["5", "much, 5 dB below"]];
const MOST = 4;
const RATE = 16000; // of a scene, in Hz

export function mount(root, app) {
  const page = new ScenePage(root, app);
  app.page = page;
  page.plan();
  return () => page.leave();
}

class ScenePage extends RecordingPage {
  plan(error = null) {
    this.leave();
    this.app.plan ??= { talkers: [0, 1].map(talker), t60: "", snr: "30" };
    const wish = this.app.plan;
    this.wish = wish;
    const canvas = el("canvas", { class: "sphere tall", tabindex: 0, role: "img", "aria-label": "Talkers on a sphere around the head. Their sliders place them, too." });
    this.list = el("div", { class: "sources" });
    const room = el("select", { onchange: () => { wish.t60 = room.value; } }, ROOMS.map(([value, words]) => el("option", { value, selected: value === wish.t60 }, words)));
    const noise = el("select", { onchange: () => { wish.snr = noise.value; } }, NOISES.map(([value, words]) => el("option", { value, selected: value === wish.snr }, words)));
    const makes = this.app.choice.chosen?.makes_scenes;
    show(this.root, error ? failure(error) : null,
      el("header", { class: "result" }, el("div", {}, el("h1", {}, "Make a scene"),
        el("p", { class: "note" }, "Drag the talkers around the head; over the rim they go to the other side. What is found will stand beside what is true."))),
      el("div", { class: "result-grid" },
        el("section", { class: "card", "aria-label": "Places" }, canvas, el("ul", { class: "key" }, el("li", {}, "drag a talker: place it"), el("li", {}, "drag the sphere, or arrow keys: turn it"))),
        el("div", { class: "side" }, this.list,
          el("section", { class: "card", "aria-label": "Around them" },
            el("p", { class: "fields" }, el("label", {}, "Room ", room), el("label", {}, "Noise ", noise)),
            makes ? null : el("p", { class: "note warn" }, "This head is known by its atlas alone. The scene is made with the simulated head."),
            el("p", { class: "choices spaced" }, el("button", { class: "main", onclick: () => this.apart() }, icon("again"), "Make it and take it apart"),
              this.hear = el("button", { onclick: () => this.listen() }, icon("play"), "Hear it"))))));
    this.ball = new Sphere(canvas, { drags: { moved: (item) => this.moved(item), chosen: (item) => this.choose(item) } });
    this.parts.push(this.ball);
    this.rows();
  }

  rows() {
    const { talkers } = this.wish;
    const items = talkers.map((one, m) => ({ ...look(m), direction: one.direction, label: String(m + 1), name: one.name, talker: one }));
    this.ball.set({ items });
    this.outputs = [];
    show(this.list, talkers.map((one, m) => this.row(one, m, items[m])),
      talkers.length < MOST ? el("p", { class: "choices spaced" }, el("button", { onclick: () => this.add() }, "Add a talker")) : null);
  }

  row(one, m, item) {
    const slider = (axis, words) => angleSlider(axis, `${words} of ${one.name}`,
      (value) => { one.direction = one.direction.map((v, i) => (i === axis ? value : v)); item.direction = one.direction; this.told(m); this.ball.draw(); });
    const [across, up] = [slider(0, "Azimuth"), slider(1, "Elevation")];
    placeSliders([across, up], one.direction);
    const words = el("p", { class: "note" }, placeWords(one.direction));
    this.outputs[m] = { across, up, words };
    const voice = el("select", { "aria-label": `Voice of talker ${m + 1}`, onchange: () => (voice.value === "file" ? file.click() : this.voice(m, Number(voice.value))) },
      VOICES.map((name, i) => el("option", { value: i, selected: one.voice === i }, name)), one.sound === undefined ? null : el("option", { value: "", selected: true }, one.name), el("option", { value: "file" }, "a file of your own …"));
    const file = el("input", { type: "file", class: "unseen", accept: "audio/*,.wav,.flac,.ogg,.aiff", tabindex: -1, "aria-hidden": "true", onchange: () => file.files.length && this.sound(m, file.files[0]) });
    return el("section", { class: "card source", style: { "--colour": item.colour, "--on": item.on }, "aria-label": `Talker ${m + 1}` },
      el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(m + 1)), el("div", { class: "grow" }, voice, file, words),
        el("div", { class: "sliders" }, el("label", {}, el("span", {}, "↔"), across), el("label", {}, el("span", {}, "↕"), up)),
        this.wish.talkers.length > 1 ? el("button", { class: "toggle", "aria-label": `Remove talker ${m + 1}`, onclick: () => { this.wish.talkers.splice(m, 1); this.rows(); } }, "Remove") : null));
  }

  told(m) {
    const { across, up, words } = this.outputs[m];
    const place = this.wish.talkers[m].direction;
    placeSliders([across, up], place);
    words.textContent = placeWords(place);
  }

  moved(item) {
    item.talker.direction = item.direction;
    this.told(this.wish.talkers.indexOf(item.talker));
  }

  choose(item) { for (const one of this.ball.items) one.chosen = one === item; }

  add() {
    const used = new Set(this.wish.talkers.map((one) => one.voice));
    this.wish.talkers.push(talker([0, 1, 2, 3].find((i) => !used.has(i)) ?? 0));
    this.rows();
  }

  voice(m, i) { Object.assign(this.wish.talkers[m], { voice: i, name: VOICES[i] }); delete this.wish.talkers[m].sound; this.rows(); }

  async sound(m, file) {
    try {
      const { sound, name } = await upload("sounds", file, { name: file.name });
      Object.assign(this.wish.talkers[m], { sound, name, voice: undefined });
      this.rows();
    } catch (error) { this.plan(error.message); }
  }

  // A file that is dropped here becomes a talker.
  dropped(file) {
    if (this.player || !this.list) return false;
    if (this.wish.talkers.length < MOST) this.wish.talkers.push(talker(this.wish.talkers.length));
    this.sound(this.wish.talkers.length - 1, file);
    return true;
  }

  get head() { return this.app.choice.chosen?.makes_scenes ? this.app.head : "simulated"; }

  make() {
    const { talkers, t60, snr } = this.wish;
    return post("scenes", {
      name: talkers.map((one) => one.name).join(" and ") + (talkers.length > 1 ? " at once" : ""),
      head: this.head, t60_seconds: t60 ? Number(t60) : null, snr_db: Number(snr),
      talkers: talkers.map((one) => ({ voice: one.voice, sound: one.sound, azimuth: one.direction[0], elevation: one.direction[1] })),
    });
  }

  async apart() {
    try {
      const made = await this.make();
      const job = await this.follow(made.job, made.name);
      if (job.state !== "done") return;
      const again = await post(`recordings/${made.recording}/again`, { head: this.head });
      await this.watch(made.recording, again.job, made.name);
    } catch (error) { this.plan(error.message); }
  }

  // The mixture alone, without leaving the plan.
  async listen() {
    if (this.trial) { this.trial.close(); this.trial = null; this.hear.lastChild.textContent = "Hear it"; return; }
    const button = this.hear;
    button.disabled = true;
    button.lastChild.textContent = "Being made …";
    try {
      const made = await this.make();
      const job = await followed(made.job, () => {});
      if (job.state !== "done") throw new Error(job.error);
      const trial = new Player(RATE);
      await trial.load([fileOf(made.recording, job.answer.files.mixture)]);
      if (button !== this.hear || !button.isConnected) { trial.close(); return; }
      this.trial = trial;
      this.parts.push(trial);
      trial.changed = () => { if (!trial.playing && this.trial === trial) { this.trial = null; button.lastChild.textContent = "Hear it"; } };
      button.lastChild.textContent = "Stop";
      await trial.play();
    } catch (error) { this.plan(error.message); }
    button.disabled = false;
  }

  begin() { this.plan(); }
  empty(error = null) { this.plan(error); }
  mark() {} // it stays the page of scenes
}

function talker(i) { return { voice: i, name: VOICES[i], direction: PLACES[i] }; }

function look(m) {
  const style = getComputedStyle(document.documentElement);
  return { colour: style.getPropertyValue(`--source${m + 1}`).trim(), on: m === 1 ? "#10151a" : "#ffffff" };
}
