// Recording page: choose or record a file, then directions, separated sounds and charts.

import { cancel, pollJob, get, AbortedError, post, remove, RequestError, upload } from "./api.js";
import { el, icon, announce, prose, setContent } from "./dom.js";
import { record } from "./record.js";
import { Result } from "./result.js";
import { uploadAll, zipButton } from "./several.js";

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

export class RecordingPage {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.parts = [];
    this.hash = location.hash; // of this page; another one is that of the page the user goes to
  }

  get backText() { return "Another recording"; }

  close() {
    for (const part of this.parts) part.close();
    this.parts = [];
    this.result = null;
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
      return one && !this.job && this.app.page === this ? this.reopen(one) : undefined;
    } catch (error) { return this.app.page === this ? this.empty(error.message) : undefined; }
  }

  // Put the recording into the address, for the browser's back, forward and reload.
  setAddress(id) {
    const to = id ? `#recording/${id}` : "#recording";
    document.querySelector("#tabs a[data-page=recording]")?.setAttribute("href", to);
    if (location.hash !== this.hash || to === this.hash) return;
    history.pushState(null, "", to);
    this.hash = to;
  }

  empty(error = null, unsaved = null) {
    this.leave();
    const input = el("input", { type: "file", class: "visually-hidden", accept: "audio/*,.wav,.flac,.ogg,.aiff,.aif", tabindex: -1, "aria-hidden": "true", multiple: true,
      onchange: () => input.files.length && this.separateFiles([...input.files]) });
    const zone = el("section", { class: "card drop", "aria-label": "Choose a recording" },
      el("h1", {}, "Drop a binaural recording here"),
      el("p", { class: "lead" }, "See where each sound comes from, with its uncertainty, and listen to each one separately."),
      this.picker = el("div", { class: "picker" }, this.app.choice.picker()),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => input.click() }, icon("file"), "Choose a file"),
        el("button", { onclick: () => this.record() }, icon("record"), "Record two channels"),
        el("button", { onclick: () => this.example() }, icon("play"), "Try two voices")),
      el("p", { class: "note" }, "WAV, FLAC, OGG or AIFF with two channels, left and right, up to 5 minutes. Nothing leaves this computer."), input);
    const list = el("div", {});
    const saved = unsaved && el("p", { class: "choices spaced" }, el("a", { class: "button", download: "recorded.wav", href: URL.createObjectURL(unsaved) }, icon("down"), "Save the recording"));
    const alert = error ? failure(error) : null;
    if (alert && saved) alert.append(saved);
    announce("");
    setContent(this.root, alert, zone, list);
    this.listEarlier(list);
  }

  // Show another selected head, or another list of heads.
  headChanged() {
    if (!this.picker?.isConnected) return;
    const focused = this.picker.contains(document.activeElement);
    setContent(this.picker, this.app.choice.picker());
    if (focused) this.picker.querySelector("[aria-pressed=true]")?.focus();
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
    if (job.state === "done") this.result?.showReport();
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

  get player() { return this.result?.player ?? null; }

  showResult(id, view, hasReport) {
    const { yaw, pitch } = this.result?.spheres?.[0] ?? {};
    this.close();
    this.result = new Result(this, id, view, hasReport, yaw === undefined ? {} : { yaw, pitch });
    this.parts.push(this.result);
    this.result.show(this.root);
  }

  key(event) { return this.result?.key(event) ?? false; }
}

export { disc } from "./result.js";

export function failure(error) {
  const [sentence, details] = Array.isArray(error) ? error : [error, ""];
  const text = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  return el("section", { class: "card failed", role: "alert" }, el("h2", {}, "Something went wrong"), el("p", {}, prose(text)),
    details ? el("details", {}, el("summary", {}, "Details for a bug report"), el("pre", {}, details)) : null);
}
