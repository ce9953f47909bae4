// Recording page: choose or record a file, then directions, separated sounds and charts.

import { cancel, fileAddress, pollJob, get, AbortedError, post, remove, RequestError, upload } from "./api.js";
import { el, icon, announce, setContent } from "./dom.js";
import { PosteriorMaps } from "./maps.js";
import { pictureMenu } from "./pictures.js";
import { Player } from "./player.js";
import { record } from "./record.js";
import { uploadAll, zipButton } from "./several.js";
import { Sphere } from "./sphere.js";
import { TimeViews } from "./time.js";

const EXAMPLE = {
  name: "Ada and Hugh",
  talkers: [{ voice: 0, azimuth: 41, elevation: 1 }, { voice: 1, azimuth: -64, elevation: 24 }], snr_db: 30,
};

export function mount(root, app) {
  const page = new RecordingPage(root, app);
  app.page = page;
  page.begin();
  return () => page.leave();
}

const MAX_SECONDS = 300; // of a recording
const HALF = 0.55; // ratio of the 50 % to the 90 % radius of an isotropic Gaussian

export class RecordingPage {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.parts = [];
  }

  get backText() { return "Another recording"; }

  close() {
    for (const part of this.parts) part.close();
    this.parts = [];
    this.spheres = null;
    cancelAnimationFrame(this.ticking);
    this.player = null;
    this.recorder?.stop();
  }

  leave() {
    this.job = null;
    this.close();
  }

  // --- choice of a recording ---------------------------------------------------------------

  // Show the recording of the live page, the one in the address, or the empty page.
  async begin() {
    const { pending } = this.app;
    this.app.pending = null;
    if (pending) return this.separateFile(pending, "live.wav");
    const id = location.hash.split("/")[1];
    this.empty();
    if (!id) return undefined;
    try {
      const one = (await get("recordings")).recordings.find(({ recording }) => recording === id);
      return one && !this.job ? this.reopen(one) : undefined;
    } catch (error) { return this.empty(error.message); }
  }

  // Put the recording into the address, for the browser's back, forward and reload.
  setAddress(id) {
    const to = id ? `#recording/${id}` : "#recording";
    document.querySelector("#tabs a[data-page=recording]")?.setAttribute("href", to);
    if (location.hash !== to) history.pushState(null, "", to);
  }

  empty(error = null, unsaved = null) {
    this.leave();
    const input = el("input", { type: "file", class: "visually-hidden", accept: "audio/*,.wav,.flac,.ogg,.aiff,.aif", tabindex: -1, "aria-hidden": "true", multiple: true,
      onchange: () => input.files.length && this.separateFiles([...input.files]) });
    const zone = el("section", { class: "card drop", "aria-label": "Choose a recording" },
      el("h1", {}, "Drop a binaural recording here"),
      el("p", { class: "lead" }, "See where each sound comes from, with its uncertainty, and listen to each one separately."),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => input.click() }, icon("file"), "Choose a file"),
        el("button", { onclick: () => this.record() }, icon("record"), "Record two channels"),
        el("button", { onclick: () => this.example() }, icon("play"), "Try two voices")),
      el("p", { class: "note" }, "WAV, FLAC, OGG or AIFF with two channels, left and right, up to 5 minutes. Nothing leaves this computer."),
      el("p", { class: "note" }, "Analysed with the head selected above. To use your own head, drop its .sofa or .atlas file."),
      input);
    const list = el("div", {});
    const saved = unsaved && el("p", { class: "choices spaced" }, el("a", { class: "button", download: "recorded.wav", href: URL.createObjectURL(unsaved) }, icon("down"), "Save the recording"));
    const alert = error ? failure(error) : null;
    if (alert && saved) alert.append(saved);
    announce("");
    setContent(this.root, alert, zone, list);
    this.listEarlier(list);
  }

  // Recordings that were separated before in this tab, also after a reload.
  async listEarlier(root) {
    let recordings;
    try { ({ recordings } = await get("recordings")); } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      return; // the next request reports the error
    }
    if (!recordings.length) return setContent(root);
    const removeRecording = async (id) => { await remove(`recordings/${id}`); this.listEarlier(root); };
    const done = recordings.filter(({ state }) => state === "done").map(({ recording }) => recording);
    const summary = ({ state, facts }) => (facts.length ? facts.join(" · ") : state === "cancelled" ? "cancelled; open to separate it" : "in progress");
    if (recordings.some(({ state }) => state === "waiting" || state === "running")) setTimeout(() => root.isConnected && this.listEarlier(root), 1000);
    return setContent(root, el("section", { class: "card earlier", "aria-label": "Earlier recordings" }, el("h2", {}, "Earlier in this tab"),
      el("ul", {}, recordings.map((one) => el("li", {},
        el("button", { class: "open", onclick: () => this.reopen(one) }, el("b", {}, one.name), el("span", { class: "note" }, summary(one))),
        el("button", { class: "toggle", "aria-label": `Remove ${one.name}`, onclick: () => removeRecording(one.recording) }, "Remove")))),
      done.length > 1 ? el("p", { class: "choices spaced" }, zipButton(`Save all ${done.length} as ZIP`, () => done)) : null));
  }

  // Show the result of an earlier recording. One that was cancelled or has failed is separated again.
  async reopen({ recording, job, name, state }) {
    try {
      const ended = state === "cancelled" || state === "failed";
      const shown = ended ? (await post(`recordings/${recording}/separate`, { head: this.app.head })).job : job;
      await this.watch(recording, shown, name);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.empty(error.message);
    }
  }

  async record() {
    try {
      this.recorder = await record((seconds, levels) => {
        meter(seconds, levels);
        if (seconds >= MAX_SECONDS) this.stopRecording();
      });
    } catch (error) {
      return this.empty(error.message);
    }
    const bars = [el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": "Left" }), el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": "Right" })];
    const clock = el("b", {}, "0.0 s");
    const meter = (seconds, levels) => {
      clock.textContent = `${seconds.toFixed(1)} of at most ${MAX_SECONDS} s`;
      bars.forEach((bar, i) => { bar.value = Math.max(-60, levels[i]); });
    };
    setContent(this.root, el("section", { class: "card drop" },
      el("h1", {}, "Recording ", clock),
      el("p", { class: "meters" }, el("label", {}, "Left ", bars[0]), el("label", {}, "Right ", bars[1])),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => this.stopRecording() }, icon("stop"), "Stop and separate"),
        el("button", { onclick: () => this.empty() }, "Discard"))));
    return undefined;
  }

  async stopRecording() {
    const { recorder } = this;
    this.recorder = null;
    if (recorder) this.separateFile(await recorder.stop(), "recorded.wav");
  }

  async example() {
    try {
      const made = await post("scenes", { ...EXAMPLE, head: "simulated" });
      const job = await this.follow(made.job, EXAMPLE.name);
      if (job.state !== "done") return;
      const done = await post(`recordings/${made.recording}/separate`, { head: "simulated" });
      this.app.selectHead("simulated");
      await this.watch(made.recording, done.job, EXAMPLE.name);
    } catch (error) { this.empty(error.message); }
  }

  // --- jobs --------------------------------------------------------------------------------

  async separateFile(file, name = file.name) {
    const abort = new AbortController();
    const uploading = {}; // identifies this upload until the page starts another job
    this.job = uploading;
    const progress = this.busy(name, () => abort.abort());
    progress("uploading", 0);
    try {
      const added = await upload("recordings", file, { name, head: this.app.head }, (fraction) => progress("uploading", fraction), abort.signal);
      if (this.job === uploading) await this.watch(added.recording, added.job, added.name);
    } catch (error) {
      if (!(error instanceof RequestError) && !(error instanceof AbortedError)) throw error;
      // A recording made here is not stored elsewhere: offer to save it.
      if (this.job === uploading) this.empty(error.message || null, file instanceof File ? null : file);
    }
  }

  // A single file is shown; several are uploaded one after the other and listed.
  async separateFiles(files) {
    if (files.length === 1) { await this.separateFile(files[0]); return; }
    const abort = new AbortController();
    const uploading = {};
    this.job = uploading;
    const progress = this.busy(`${files.length} recordings`, () => abort.abort());
    const refused = await uploadAll(files, { head: this.app.head }, progress, abort.signal);
    if (this.job === uploading) this.empty(refused.length ? refused.join(" ") : null);
  }

  async follow(id, name) {
    const progress = this.busy(name, () => cancel(id));
    this.job = id;
    const job = await pollJob(id, (state) => {
      if (this.job !== id) return false;
      return progress(state.state === "waiting" ? "waiting for other jobs" : state.stage, state.progress);
    });
    if (job.state === "failed") this.empty([job.error, job.details]);
    if (job.state === "cancelled") this.empty();
    return job;
  }

  async watch(recording, id, name) {
    const progress = this.busy(name, () => cancel(id));
    this.job = id;
    let drawn = null; // the last result that was shown
    const job = await pollJob(id, (state, fresh) => {
      if (this.job !== id) return false;
      if (fresh && state.result?.sources && (!drawn || (drawn.preliminary && !state.result.preliminary))) {
        drawn = state.result;
        this.setAddress(recording);
        this.showResult(recording, drawn, Boolean(drawn.files.report));
      } else if (!drawn) progress(state.state === "waiting" ? "waiting for other jobs" : state.stage, state.progress);
      return true;
    });
    if (job.state === "done") this.showReport?.();
    if (job.state === "failed" || job.state === "cancelled") await this.restore(recording, id, job);
  }

  // After a separation that was cancelled or has failed, show the previous result, if there is one.
  async restore(recording, id, job) {
    const alert = job.state === "failed" ? [job.error, job.details] : null;
    const { recordings } = await get("recordings");
    const previous = recordings.find((one) => one.recording === recording);
    if (!previous || previous.job === id) { this.empty(alert); return; }
    await this.watch(recording, previous.job, previous.name);
    if (alert) this.root.prepend(failure(alert));
  }

  busy(name, onCancel) {
    this.close();
    const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
    const stage = el("p", { class: "note" }, " ");
    setContent(this.root, el("section", { class: "card drop busy" },
      el("h1", {}, name), bar, stage,
      el("p", { class: "choices" }, el("button", { onclick: onCancel }, "Cancel"))));
    announce(`Processing ${name}`);
    return (text, fraction) => { stage.textContent = text || " "; bar.value = fraction; };
  }

  // --- the result --------------------------------------------------------------------------

  showResult(id, view, hasReport) {
    const { yaw, pitch } = this.spheres?.[0] ?? {};
    this.close();
    this.orientation = yaw === undefined ? {} : { yaw, pitch };
    this.id = id;
    this.view = view;
    this.last = null;
    this.player = new Player(view.rate);
    this.parts.push(this.player);
    const heading = el("header", { class: "result" },
      el("div", {}, el("h1", {}, view.name),
        el("ul", { class: "facts" }, [...view.facts, `head: ${view.head}`].map((fact) => el("li", {}, fact)))),
      view.preliminary ? el("button", { onclick: () => cancel(this.job) }, "Cancel") : null,
      el("button", { onclick: () => { this.setAddress(null); this.empty(); } }, icon("file"), this.backText));
    const notes = [...view.doubts, ...(view.warnings ?? [])];
    setContent(this.root, heading,
      notes.length ? el("ul", { class: "doubts", "aria-label": "Doubts" }, notes.map((note) => el("li", {}, note))) : null,
      el("div", { class: "result-grid" }, this.sphereCard(), el("div", { class: "side" }, this.sourceCards(), this.transport(), this.settings(hasReport))),
      this.timeCard(), this.mapCard(), this.comparisonTable());
    this.load();
    const count = view.sources.length;
    announce(`${count} source${count === 1 ? "" : "s"} found. ${view.sources.map((s) => `${s.number}: ${s.place}`).join(". ")}`);
    const tick = () => { this.ticking = requestAnimationFrame(tick); this.updateCursor(); };
    tick();
  }

  sphereCard() {
    const items = this.view.sources.map((source) => ({
      direction: source.direction, alternatives: source.alternative_directions, colour: source.colour, on: source.text_colour, label: String(source.number), region: source.region, unknown: !source.known,
    }));
    const description = this.view.sources.map((source) => [`${source.number}: ${source.place}`, source.alternatives_text, source.uncertainty].filter(Boolean).join(", ")).join("; ");
    const big = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": `Sphere around the head; arrow keys rotate it. ${description}` });
    const top = el("canvas", { class: "small", role: "img", "aria-label": `From above. ${description}` });
    const side = el("canvas", { class: "small", role: "img", "aria-label": `From the right. ${description}` });
    const card = el("section", { class: "card spheres", "aria-label": "Where the sounds come from" }, big,
      el("div", { class: "smalls" },
        el("figure", {}, el("figcaption", {}, "From above"), top),
        el("figure", {}, el("figcaption", {}, "From the right"), side)),
      el("ul", { class: "key" }, el("li", {}, "dark: 50 % region, light: 90 % region"), this.view.truth.length ? el("li", { class: "true" }, "true direction") : null, el("li", {}, "drag or arrow keys: rotate")),
      pictureMenu(() => this.spherePictures([big, top, side])));
    const marks = this.view.truth;
    queueMicrotask(() => {
      this.spheres = [new Sphere(big, this.orientation), new Sphere(top, { pitch: 90, yaw: 0, turns: false, small: true }), new Sphere(side, { pitch: 0, yaw: 90, turns: false, small: true })];
      for (const sphere of this.spheres) { sphere.set({ items, marks }); this.parts.push(sphere); }
      this.app.sphere = this.spheres[0];
    });
    this.items = items;
    return card;
  }

  spherePictures(canvases) {
    const legend = [...this.view.sources.map(({ colour, number, place }) => ({ colour, name: `${number}: ${place}` })), { colour: "none", name: "dark: 50 % region, light: 90 % region" }];
    return ["Sphere", "From above", "From the right"].map((name, i) => ({
      name, legend, title: this.view.name, parts: [{ canvas: canvases[i], title: i ? name : "" }], draw: () => this.spheres[i].paint(),
    }));
  }

  sourceCards() {
    this.cards = this.view.sources.map((source, m) => {
      const i = m + 1;
      const solo = el("button", { class: "toggle", "aria-pressed": "false", title: `Play only this source (key ${i})`, "aria-label": `Solo source ${i}`, disabled: Boolean(this.view.preliminary), onclick: () => this.toggleSolo(i) }, "Solo");
      const mute = el("button", { class: "toggle", "aria-pressed": "false", "aria-label": `Mute source ${i}`, disabled: Boolean(this.view.preliminary), onclick: () => this.toggleMute(i) }, "Mute");
      const card = el("section", { class: "card source", style: { "--colour": source.colour, "--on": source.text_colour }, "aria-label": `Source ${i}` },
        el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(i)),
          el("div", { class: "grow" }, el("p", { class: "place" }, source.place),
            source.alternatives_text ? el("p", { class: "note" }, source.alternatives_text) : null,
            el("p", { class: "note" }, `${source.uncertainty} · ${source.energy} of the energy${source.moves ? " · moving" : ""}`)),
          el("div", { class: "toggles" }, solo, mute)),
        source.doubts.length ? el("ul", { class: "doubts" }, source.doubts.map((doubt) => el("li", {}, doubt))) : null);
      return { card, solo, mute };
    });
    const none = el("section", { class: "card" }, el("p", {}, "No source was found in this recording."));
    return el("div", { class: "sources" }, this.cards.length ? this.cards.map(({ card }) => card) : none);
  }

  transport() {
    this.button = el("button", { class: "round", "aria-label": "Play", disabled: true, onclick: () => this.player.toggle() }, icon("play"));
    this.clock = el("span", { class: "clock" }, clock(0, this.view.seconds));
    this.ab = [["Mixture", true], ["Separated", false]].map(([name, mixed]) =>
      el("button", { class: "toggle", disabled: Boolean(this.view.preliminary), "aria-pressed": String(Boolean(this.view.preliminary) === mixed), onclick: () => this.player.select({ mixed }) }, name));
    this.player.changed = () => this.updateControls();
    return el("section", { class: "card transport", "aria-label": "Playback" }, this.button, this.clock,
      el("div", { class: "segments", role: "group", "aria-label": "Mixture or separated" }, this.ab),
      el("p", { class: "note hint" }, "Space: play · A: mixture or separated · 1 to 6: solo · 0: all"));
  }

  timeCard() {
    this.time = new TimeViews(this.view, { seek: (t) => this.player.seek(t), shown: (m) => this.player.mixed || this.view.preliminary || this.player.gains()[m + 1] !== 0 });
    this.parts.push(this.time);
    const kinds = [["By source", "source"], ["Level", "level"], ["ILD", "ild"], ["IPD", "ipd"]].map(([name, value], i) => el("button", {
      class: "toggle", "aria-pressed": String(i === 0), title: { ild: "Interaural level difference", ipd: "Interaural phase difference" }[value],
      onclick: () => { this.time.setColours(value); kinds.forEach((kind, j) => kind.setAttribute("aria-pressed", String(i === j))); },
    }, name));
    return el("section", { class: "card", "aria-label": "Over time" }, this.time.stack,
      el("div", { class: "segments left", role: "group", "aria-label": "Spectrogram" }, kinds), pictureMenu(() => [this.time.picture()]));
  }

  mapCard() {
    if (!this.view.sources.some(({ map }) => map)) return null;
    const maps = new PosteriorMaps(this.view);
    this.parts.push(maps);
    return maps.card;
  }

  comparisonTable() {
    const rows = this.view.comparison;
    if (!rows?.length) return null;
    const head = ["Talker", "True direction", "Estimated direction", "Error", "SDR before", "SDR after"];
    return el("section", { class: "card", "aria-label": "Comparison with the ground truth" }, el("h2", {}, "Comparison with the ground truth"),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, head.map((name, i) => el("th", { scope: "col", class: i > 2 ? "num" : null }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.name),
          [row.true, row.estimated, row.error, row.before, row.after].map((cell, i) => el("td", { "data-name": head[i + 1], class: i > 1 ? "num" : null }, cell))))))));
  }

  settings(hasReport) {
    const { files, settings } = this.view;
    const link = (name, label) => el("a", { class: "button", href: fileAddress(this.id, name), download: "" }, icon("down"), label);
    const report = el("span", {});
    if (!hasReport && !this.view.preliminary) setContent(report, el("span", { class: "note" }, "Writing the report …"));
    const count = el("select", {}, [["", "automatic"], ...[1, 2, 3, 4, 5, 6].map((n) => [n, String(n)])].map(([value, label]) =>
      el("option", { value, selected: String(settings.n_sources ?? "") === String(value) }, label)));
    const rendering = el("select", {}, [["spatial", "spatial filters"], ["soft", "soft masks"], ["binary", "binary masks"]].map(([value, label]) =>
      el("option", { value, selected: settings.rendering === value }, label)));
    const problem = el("p", { class: "note", role: "alert" });
    const separateAgain = async () => {
      try {
        const done = await post(`recordings/${this.id}/separate`, { head: this.app.head, n_sources: count.value || null, rendering: rendering.value });
        await this.watch(this.id, done.job, this.view.name);
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        problem.textContent = error.message; // the result stays on the page
      }
    };
    // A separation ends with its report; it can be repeated from then on.
    const apply = el("button", { onclick: separateAgain, disabled: !hasReport, title: "Separate again with these settings and the head selected above" }, icon("again"), "Apply");
    this.showReport = () => { setContent(report, el("span", { class: "choices small" }, link("report.html", "Report"), zipButton("All as ZIP", () => [this.id]))); apply.disabled = false; };
    if (hasReport) this.showReport();
    return el("section", { class: "card more", "aria-label": "Settings and downloads" },
      el("p", { class: "fields" }, el("label", {}, "Sources ", count), el("label", {}, "Rendering ", rendering),
        apply), problem,
      el("p", { class: "choices small" }, link(files.mixture, "Mixture"), files.sounds.map((name, m) => link(name, `Source ${m + 1}`)), files.json ? link(files.json, "JSON") : null, (files.tables ?? []).map((name) => link(name, name === "tracks.csv" ? "Tracks (CSV)" : "Sources (CSV)")), report));
  }

  // --- playback ----------------------------------------------------------------------------

  async load() {
    const { files } = this.view;
    const player = this.player;
    try {
      await player.load([files.mixture, ...files.sounds].map((name) => fileAddress(this.id, name)));
      this.button.disabled = false;
    } catch (error) { if (player === this.player) this.clock.textContent = error.message; }
  }

  // A selection made while the mixture plays replaces the previous selection of sources.
  toggleSolo(i) {
    const { mixed, solo } = this.player;
    this.player.select({ mixed: false, solo: new Set(!mixed && solo.has(i) ? [] : [i]) });
  }

  toggleMute(i) {
    const mute = new Set(this.player.mixed ? [] : this.player.mute);
    if (!mute.delete(i)) mute.add(i);
    this.player.select({ mixed: false, mute, solo: new Set() });
  }

  updateControls() {
    const { playing, mixed, solo, mute } = this.player;
    setContent(this.button, icon(playing ? "pause" : "play"));
    this.button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.ab.forEach((button, i) => button.setAttribute("aria-pressed", String((i === 0) === (mixed || Boolean(this.view.preliminary)))));
    this.cards.forEach((card, m) => {
      card.solo.setAttribute("aria-pressed", String(!mixed && solo.has(m + 1)));
      card.mute.setAttribute("aria-pressed", String(!mixed && mute.has(m + 1)));
      const audible = mixed || this.view.preliminary || this.player.gains()[m + 1] !== 0 || !this.player.buffers.length;
      this.items[m].faint = audible ? 1 : 0.3;
      card.card.classList.toggle("quiet", !audible);
    });
    for (const sphere of this.spheres ?? []) sphere.draw();
    this.time?.draw();
  }

  updateCursor() {
    if (!this.player) return;
    const t = this.player.position();
    if (t === this.last) return;
    this.last = t;
    this.time.setCursor(t);
    this.updateMoving(t);
    this.clock.textContent = clock(t, this.view.seconds);
  }

  // Draw moving sources at their direction at the cursor.
  updateMoving(t) {
    let moved = false;
    for (const [m, source] of this.view.sources.entries()) {
      if (!source.moves) continue;
      const { seconds, azimuth, elevation } = source.track;
      const active = seconds.map((at, i) => [Math.abs(at - t), i]).filter(([, i]) => azimuth[i] !== null);
      if (!active.length) continue;
      const [, i] = active.reduce((a, b) => (b[0] < a[0] ? b : a));
      this.items[m].direction = [azimuth[i], elevation[i]];
      this.items[m].region = disc([azimuth[i], elevation[i]], source.track.radius[i]);
      moved = true;
    }
    if (moved) for (const sphere of this.spheres ?? []) sphere.draw();
  }

  key(event) {
    if (!this.player?.buffers.length || this.view.preliminary) return false;
    if (event.key === " ") this.player.toggle();
    else if (event.key.toLowerCase() === "a") this.player.select({ mixed: !this.player.mixed });
    else if (event.key === "0") this.player.select({ mixed: false, solo: new Set(), mute: new Set() });
    else if (/^[1-6]$/.test(event.key) && Number(event.key) <= this.cards.length) this.toggleSolo(Number(event.key));
    else return false;
    return true;
  }
}

// The credible region of a tracked source: a disc.
export function disc(direction, radius) {
  return { cells: [direction], half: 0, cell_degrees: radius, inner: HALF * radius };
}

function clock(t, whole) { return `${t.toFixed(1)} of ${whole.toFixed(1)} s`; }

export function failure(error) {
  const [sentence, details] = Array.isArray(error) ? error : [error, ""];
  const text = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  return el("section", { class: "card failed", role: "alert" }, el("h2", {}, "Something went wrong"), el("p", {}, text),
    details ? el("details", {}, el("summary", {}, "Details for a bug report"), el("pre", {}, details)) : null);
}
