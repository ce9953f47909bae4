// A recording: dropped, recorded or tried; then where everything is, and each sound by itself.

import { cancel, fileOf, followed, get, Left, post, remove, Refused, upload } from "./api.js";
import { el, icon, say, show } from "./dom.js";
import { Player } from "./player.js";
import { record } from "./record.js";
import { Sphere } from "./sphere.js";
import { TimeViews } from "./time.js";

const EXAMPLE = {
  name: "Ada and Hugh at once",
  talkers: [{ voice: 0, azimuth: 41, elevation: 1 }, { voice: 1, azimuth: -64, elevation: 24 }], snr_db: 30,
};

export function mount(root, app) {
  const page = new RecordingPage(root, app);
  app.page = page;
  page.begin();
  return () => page.leave();
}

const MOST = 300; // seconds that are recorded
const HALF = 0.55; // of the radius that holds 90 %: that of 50 %, of a round Gaussian

export class RecordingPage {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.parts = [];
  }

  close() {
    for (const part of this.parts) part.close();
    this.parts = [];
    this.balls = null;
    cancelAnimationFrame(this.ticking);
    this.player = null;
    this.recorder?.stop();
  }

  leave() {
    this.job = null;
    this.close();
  }

  // --- nothing yet -------------------------------------------------------------------------

  // What the address names, what was recorded elsewhere, or nothing.
  async begin() {
    const { pending } = this.app;
    this.app.pending = null;
    if (pending) return this.take(pending, "live.wav");
    const id = location.hash.split("/")[1];
    this.empty();
    if (!id) return undefined;
    try {
      const one = (await get("recordings")).recordings.find(({ recording }) => recording === id);
      return one && !this.job ? this.reopen(one) : undefined;
    } catch (error) { return this.empty(error.message); }
  }

  // The address of what is shown, so that the browser goes back and forth, and loads it again.
  mark(id) {
    const to = id ? `#recording/${id}` : "#recording";
    document.querySelector("#tabs a[data-page=recording]")?.setAttribute("href", to);
    if (location.hash !== to) history.pushState(null, "", to);
  }

  empty(error = null, kept = null) {
    this.leave();
    const input = el("input", { type: "file", class: "unseen", accept: "audio/*,.wav,.flac,.ogg,.aiff,.aif", tabindex: -1, "aria-hidden": "true",
      onchange: () => input.files.length && this.take(input.files[0]) });
    const zone = el("section", { class: "card drop", "aria-label": "Choose a recording" },
      el("h1", {}, "Drop a recording of two ears here"),
      el("p", { class: "lead" }, "Where is each sound, how sure is that, and what does each sound like alone?"),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => input.click() }, icon("file"), "Choose a file"),
        el("button", { onclick: () => this.record() }, icon("record"), "Record two channels"),
        el("button", { onclick: () => this.example() }, icon("play"), "Try two voices")),
      el("p", { class: "note" }, "WAV, FLAC, OGG or AIFF with two channels, left and right, up to 5 minutes. Nothing leaves this computer."),
      el("p", { class: "note" }, "It is heard with the head that is chosen above. To use your own, drop its .sofa or .atlas file."),
      input);
    const earlier = el("div", {});
    const saved = kept && el("p", { class: "choices spaced" }, el("a", { class: "button", download: "recorded.wav", href: URL.createObjectURL(kept) }, icon("down"), "Save the recording"));
    const alert = error ? failure(error) : null;
    if (alert && saved) alert.append(saved);
    say("");
    show(this.root, alert, zone, earlier);
    this.earlier(earlier);
  }

  // What this page has taken apart before; it is still there when the page was loaded again.
  async earlier(root) {
    let kept;
    try { ({ recordings: kept } = await get("recordings")); } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return; // whoever asks for more is told why
    }
    if (!kept.length) return show(root);
    const forget = async (id) => { await remove(`recordings/${id}`); this.earlier(root); };
    const words = ({ state, facts }) => (facts.length ? facts.join(" · ") : state === "cancelled" ? state : "in work");
    if (kept.some(({ state }) => state === "waiting" || state === "running")) setTimeout(() => root.isConnected && this.earlier(root), 1000);
    return show(root, el("section", { class: "card earlier", "aria-label": "Earlier recordings" }, el("h2", {}, "Earlier in this tab"),
      el("ul", {}, kept.map((one) => el("li", {},
        el("button", { class: "open", onclick: () => this.reopen(one) }, el("b", {}, one.name), el("span", { class: "note" }, words(one))),
        el("button", { class: "toggle", "aria-label": `Remove ${one.name}`, onclick: () => forget(one.recording) }, "Remove"))))));
  }

  async reopen({ recording, job, name }) {
    try { await this.watch(recording, job, name); } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.empty(error.message);
    }
  }

  async record() {
    try {
      this.recorder = await record((seconds, levels) => {
        meter(seconds, levels);
        if (seconds >= MOST) this.recorded();
      });
    } catch (error) {
      return this.empty(error.message);
    }
    const bars = [el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": "Left" }), el("meter", { min: -60, max: 0, low: -50, high: -3, "aria-label": "Right" })];
    const clock = el("b", {}, "0.0 s");
    const meter = (seconds, levels) => {
      clock.textContent = `${seconds.toFixed(1)} of at most ${MOST} s`;
      bars.forEach((bar, i) => { bar.value = Math.max(-60, levels[i]); });
    };
    show(this.root, el("section", { class: "card drop" },
      el("h1", {}, "Recording ", clock),
      el("p", { class: "meters" }, el("label", {}, "Left ", bars[0]), el("label", {}, "Right ", bars[1])),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => this.recorded() }, icon("stop"), "Stop and listen"),
        el("button", { onclick: () => this.empty() }, "Throw away"))));
    return undefined;
  }

  async recorded() {
    const { recorder } = this;
    this.recorder = null;
    if (recorder) this.take(await recorder.stop(), "recorded.wav");
  }

  async example() {
    try {
      const made = await post("scenes", { ...EXAMPLE, head: "simulated" });
      const job = await this.follow(made.job, EXAMPLE.name);
      if (job.state !== "done") return;
      const done = await post(`recordings/${made.recording}/again`, { head: "simulated" });
      this.app.chooseHead("simulated");
      await this.watch(made.recording, done.job, EXAMPLE.name);
    } catch (error) { this.empty(error.message); }
  }

  // --- work --------------------------------------------------------------------------------

  async take(file, name = file.name) {
    const stop = new AbortController();
    const sending = {}; // what the page does now, until it does something else
    this.job = sending;
    const share = this.busy(name, () => stop.abort());
    share("sending", 0);
    try {
      const taken = await upload("recordings", file, { name, head: this.app.head }, (part) => share("sending", part), stop.signal);
      if (this.job === sending) await this.watch(taken.recording, taken.job, taken.name);
    } catch (error) {
      if (!(error instanceof Refused) && !(error instanceof Left)) throw error;
      // What was recorded here is nowhere else.
      if (this.job === sending) this.empty(error.message || null, file instanceof File ? null : file);
    }
  }

  async follow(id, name) {
    const share = this.busy(name, () => cancel(id));
    this.job = id;
    const job = await followed(id, (state) => {
      if (this.job !== id) return false;
      return share(state.state === "waiting" ? "waiting for a free worker" : state.words, state.share);
    });
    if (job.state === "failed") this.empty([job.error, job.details]);
    if (job.state === "cancelled") this.empty();
    return job;
  }

  async watch(recording, id, name) {
    const share = this.busy(name, () => cancel(id));
    this.job = id;
    let drawn = null; // the last answer that was shown
    const job = await followed(id, (state, fresh) => {
      if (this.job !== id) return false;
      if (fresh && state.answer?.sources && (!drawn || (drawn.first && !state.answer.first))) {
        drawn = state.answer;
        this.mark(recording);
        this.shown(recording, drawn, Boolean(drawn.files.report));
      } else if (drawn && state.answer?.files?.report) this.report?.();
      else if (!drawn) share(state.state === "waiting" ? "waiting for a free worker" : state.words, state.share);
      return true;
    });
    if (job.state === "failed") this.empty([job.error, job.details]);
    if (job.state === "cancelled") this.empty();
  }

  busy(name, stop) {
    this.close();
    const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
    const words = el("p", { class: "note" }, " ");
    show(this.root, el("section", { class: "card drop busy" },
      el("h1", {}, name), bar, words,
      el("p", { class: "choices" }, el("button", { onclick: stop }, "Cancel"))));
    say(`Working on ${name}`);
    return (text, share) => { words.textContent = text || " "; bar.value = share; };
  }

  // --- the answer --------------------------------------------------------------------------

  shown(id, view, reported) {
    const { yaw, pitch } = this.balls?.[0] ?? {};
    this.close();
    this.aimed = yaw === undefined ? {} : { yaw, pitch };
    this.id = id;
    this.view = view;
    this.last = null;
    this.player = new Player(view.rate);
    this.parts.push(this.player);
    const heading = el("header", { class: "result" },
      el("div", {}, el("h1", {}, view.name),
        el("ul", { class: "facts" }, [...view.facts, `head: ${view.head}`].map((fact) => el("li", {}, fact)))),
      view.first ? el("button", { onclick: () => cancel(this.job) }, "Cancel") : null,
      el("button", { onclick: () => { this.mark(null); this.empty(); } }, icon("file"), "Another recording"));
    const notes = [...view.doubts, ...(view.warnings ?? [])];
    show(this.root, heading,
      notes.length ? el("ul", { class: "doubts", "aria-label": "Doubts" }, notes.map((note) => el("li", {}, note))) : null,
      el("div", { class: "result-grid" }, this.spheres(), el("div", { class: "side" }, this.sources(), this.transport(), this.more(reported))),
      this.times(), this.compared());
    this.load();
    const count = view.sources.length;
    say(`${count} source${count === 1 ? "" : "s"} found. ${view.sources.map((s) => `${s.number}: ${s.words}`).join(". ")}`);
    const tick = () => { this.ticking = requestAnimationFrame(tick); this.cursor(); };
    tick();
  }

  spheres() {
    const items = this.view.sources.map((source) => ({
      direction: source.direction, colour: source.colour, on: source.on_colour, label: String(source.number), region: source.region,
    }));
    const words = this.view.sources.map((source) => `${source.number}: ${source.words}, 90 % sure ${source.sure}`).join("; ");
    const big = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": `The head in a sphere; arrow keys turn it. ${words}` });
    const top = el("canvas", { class: "small", role: "img", "aria-label": `From above. ${words}` });
    const side = el("canvas", { class: "small", role: "img", "aria-label": `From the right side. ${words}` });
    const card = el("section", { class: "card spheres", "aria-label": "Where the sounds come from" }, big,
      el("div", { class: "smalls" },
        el("figure", {}, el("figcaption", {}, "From above"), top),
        el("figure", {}, el("figcaption", {}, "From the right"), side)),
      el("ul", { class: "key" }, el("li", {}, "dark: 50 % region, pale: 90 %"), this.view.truth.length ? el("li", { class: "true" }, "true direction") : null, el("li", {}, "drag or arrow keys: turn")));
    const marks = this.view.truth;
    queueMicrotask(() => {
      this.balls = [new Sphere(big, this.aimed), new Sphere(top, { pitch: 90, yaw: 0, turns: false, small: true }), new Sphere(side, { pitch: 0, yaw: 90, turns: false, small: true })];
      for (const ball of this.balls) { ball.set({ items, marks }); this.parts.push(ball); }
      this.app.sphere = this.balls[0];
    });
    this.items = items;
    return card;
  }

  sources() {
    this.cards = this.view.sources.map((source, m) => {
      const i = m + 1;
      const solo = el("button", { class: "toggle", "aria-pressed": "false", title: `Only this one (key ${i})`, "aria-label": `Solo source ${i}`, disabled: Boolean(this.view.first), onclick: () => this.solo(i) }, "Solo");
      const mute = el("button", { class: "toggle", "aria-pressed": "false", "aria-label": `Mute source ${i}`, disabled: Boolean(this.view.first), onclick: () => this.muted(i) }, "Mute");
      const card = el("section", { class: "card source", style: { "--colour": source.colour, "--on": source.on_colour }, "aria-label": `Source ${i}` },
        el("div", { class: "row" }, el("span", { class: "badge", "aria-hidden": "true" }, String(i)),
          el("div", { class: "grow" }, el("p", { class: "place" }, source.words),
            el("p", { class: "note" }, `90 % sure ${source.sure} · ${source.energy} of the energy${source.moves ? " · moves" : ""}`)),
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
      el("button", { class: "toggle", disabled: Boolean(this.view.first), "aria-pressed": String(Boolean(this.view.first) === mixed), onclick: () => this.player.hear({ mixed }) }, name));
    this.player.changed = () => this.state();
    return el("section", { class: "card transport", "aria-label": "Listen" }, this.button, this.clock,
      el("div", { class: "segments", role: "group", "aria-label": "A or B" }, this.ab),
      el("p", { class: "note hint" }, "Space: play · A: mixture or separated · 1 to 6: solo · 0: all"));
  }

  times() {
    this.time = new TimeViews(this.view, { seek: (t) => this.player.seek(t), shown: (m) => this.player.mixed || this.view.first || this.player.gains()[m + 1] !== 0 });
    this.parts.push(this.time);
    const kinds = [["By source", true], ["Level", false]].map(([name, value]) => el("button", {
      class: "toggle", "aria-pressed": String(value),
      onclick: () => { this.time.colour(value); kinds.forEach((kind, i) => kind.setAttribute("aria-pressed", String((i === 0) === value))); },
    }, name));
    return el("section", { class: "card", "aria-label": "Over time" }, this.time.stack,
      el("div", { class: "segments left", role: "group", "aria-label": "Spectrogram" }, kinds));
  }

  compared() {
    const rows = this.view.compared;
    if (!rows?.length) return null;
    const head = ["Talker", "True", "Found", "Off by", "SDR before", "SDR after"];
    return el("section", { class: "card", "aria-label": "Found and true" }, el("h2", {}, "Truth beside found"),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, head.map((name, i) => el("th", { scope: "col", class: i > 2 ? "num" : null }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.name),
          [row.true, row.found, row.error, row.before, row.after].map((cell, i) => el("td", { "data-name": head[i + 1], class: i > 1 ? "num" : null }, cell))))))));
  }

  more(reported) {
    const { files, settings } = this.view;
    const link = (name, words) => el("a", { class: "button", href: fileOf(this.id, name), download: "" }, icon("down"), words);
    const report = el("span", {});
    this.report = () => show(report, link("report.html", "Report"));
    if (reported) this.report(); else if (!this.view.first) show(report, el("span", { class: "note" }, "The report is being written …"));
    const count = el("select", {}, [["", "find out"], ...[1, 2, 3, 4, 5, 6].map((n) => [n, String(n)])].map(([value, words]) =>
      el("option", { value, selected: String(settings.n_sources ?? "") === String(value) }, words)));
    const how = el("select", {}, [["spatial", "filters (best)"], ["soft", "soft masks"], ["binary", "binary masks"]].map(([value, words]) =>
      el("option", { value, selected: settings.rendering === value }, words)));
    const again = async () => {
      try {
        const done = await post(`recordings/${this.id}/again`, { head: this.app.head, n_sources: count.value || null, rendering: how.value });
        await this.watch(this.id, done.job, this.view.name);
      } catch (error) { this.empty(error.message); }
    };
    return el("section", { class: "card more", "aria-label": "Settings and downloads" },
      el("p", { class: "fields" }, el("label", {}, "Sources ", count), el("label", {}, "Sound ", how),
        el("button", { onclick: again, disabled: Boolean(this.view.first), title: "With these settings, and the head that is chosen above" }, icon("again"), "Again")),
      el("p", { class: "choices small" }, link(files.mixture, "Mixture"), files.sounds.map((name, m) => link(name, `Source ${m + 1}`)), files.json ? link(files.json, "JSON") : null, report));
  }

  // --- listening ---------------------------------------------------------------------------

  async load() {
    const { files } = this.view;
    const player = this.player;
    try {
      await player.load([files.mixture, ...files.sounds].map((name) => fileOf(this.id, name)));
      this.button.disabled = false;
    } catch (error) { if (player === this.player) this.clock.textContent = error.message; }
  }

  // Who hears the mixture has not heard what was chosen before: it begins anew.
  solo(i) {
    const { mixed, solo } = this.player;
    this.player.hear({ mixed: false, solo: new Set(!mixed && solo.has(i) ? [] : [i]) });
  }

  muted(i) {
    const mute = new Set(this.player.mixed ? [] : this.player.mute);
    if (!mute.delete(i)) mute.add(i);
    this.player.hear({ mixed: false, mute, solo: new Set() });
  }

  state() {
    const { playing, mixed, solo, mute } = this.player;
    show(this.button, icon(playing ? "pause" : "play"));
    this.button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.ab.forEach((button, i) => button.setAttribute("aria-pressed", String((i === 0) === (mixed || Boolean(this.view.first)))));
    this.cards.forEach((card, m) => {
      card.solo.setAttribute("aria-pressed", String(!mixed && solo.has(m + 1)));
      card.mute.setAttribute("aria-pressed", String(!mixed && mute.has(m + 1)));
      const heard = mixed || this.view.first || this.player.gains()[m + 1] !== 0 || !this.player.buffers.length;
      this.items[m].faint = heard ? 1 : 0.3;
      card.card.classList.toggle("quiet", !heard);
    });
    for (const ball of this.balls ?? []) ball.draw();
    this.time?.draw();
  }

  cursor() {
    if (!this.player) return;
    const t = this.player.position();
    if (t === this.last) return;
    this.last = t;
    this.time.at(t);
    this.follow_moving(t);
    this.clock.textContent = clock(t, this.view.seconds);
  }

  // Where a source that moves is at the cursor.
  follow_moving(t) {
    let moved = false;
    for (const [m, source] of this.view.sources.entries()) {
      if (!source.moves) continue;
      const { seconds, azimuth, elevation } = source.course;
      const heard = seconds.map((at, i) => [Math.abs(at - t), i]).filter(([, i]) => azimuth[i] !== null);
      if (!heard.length) continue;
      const [, i] = heard.reduce((a, b) => (b[0] < a[0] ? b : a));
      this.items[m].direction = [azimuth[i], elevation[i]];
      this.items[m].region = disc([azimuth[i], elevation[i]], source.course.radius[i]);
      moved = true;
    }
    if (moved) for (const ball of this.balls ?? []) ball.draw();
  }

  key(event) {
    if (!this.player?.buffers.length || this.view.first) return false;
    if (event.key === " ") this.player.toggle();
    else if (event.key.toLowerCase() === "a") this.player.hear({ mixed: !this.player.mixed });
    else if (event.key === "0") this.player.hear({ mixed: false, solo: new Set(), mute: new Set() });
    else if (/^[1-6]$/.test(event.key) && Number(event.key) <= this.cards.length) this.solo(Number(event.key));
    else return false;
    return true;
  }
}

// A round region, as of a source that is followed.
export function disc(direction, radius) {
  return { cells: [direction], half: 0, cell_degrees: radius, inner: HALF * radius };
}

function clock(t, whole) { return `${t.toFixed(1)} of ${whole.toFixed(1)} s`; }

export function failure(error) {
  const [sentence, details] = Array.isArray(error) ? error : [error, ""];
  const words = sentence.charAt(0).toUpperCase() + sentence.slice(1);
  return el("section", { class: "card failed", role: "alert" }, el("h2", {}, "That did not work"), el("p", {}, words),
    details ? el("details", {}, el("summary", {}, "For the report"), el("pre", {}, details)) : null);
}
