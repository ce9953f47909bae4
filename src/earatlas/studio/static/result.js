// The result of a separation: directions, sources, charts over time, comparison with the truth.

import { cancel, fileAddress, pollJob, post, RequestError } from "./api.js";
import { Correction } from "./correction.js";
import { announce, badge, el, formatDirection, icon, prose, setContent, sourceCaption } from "./dom.js";
import { PosteriorMaps } from "./maps.js";
import { pictureMenu } from "./pictures.js";
import { Player } from "./player.js";
import { Settings } from "./settings.js";
import { Sphere } from "./sphere.js";
import { TimeViews } from "./time.js";
import { Toolbar, Transport } from "./transport.js";

const HALF = 0.55; // ratio of the 50 % to the 90 % radius of an isotropic Gaussian

export class Result {
  constructor(page, id, view, hasReport, orientation) {
    Object.assign(this, { page, id, view, orientation, last: null, parts: [], pointer: null });
    this.player = new Player(view.rate);
    this.parts.push(this.player);
    this.settings = new Settings(this, hasReport);
    this.transport = new Transport(this);
    this.toolbar = new Toolbar(this);
    this.player.changed = () => this.updateControls();
  }

  get seconds() { return this.view.seconds; }

  close() {
    for (const part of this.parts) part.close();
    cancelAnimationFrame(this.ticking);
  }

  show(root) {
    const { view } = this;
    const notes = [...view.doubts, ...(view.warnings ?? [])];
    this.list = el("div", { class: "sources" });
    setContent(root, this.heading(),
      notes.length ? el("ul", { class: "doubts", "aria-label": "Doubts" }, notes.map((note) => el("li", {}, prose(note)))) : null,
      view.other_head ? this.otherHeads() : null,
      el("div", { class: "result-grid" }, this.sphereCard(), el("div", { class: "side" }, this.list, this.settings.card)),
      this.timeCard(), this.mapCard(), this.comparisonTable(), this.transport.bar);
    this.showSources();
    this.load();
    const count = view.sources.length;
    announce(`${count} source${count === 1 ? "" : "s"} found. ${view.sources.map((s) => `${title(s)}: ${s.place}`).join(". ")}`);
    const tick = () => { this.ticking = requestAnimationFrame(tick); this.updateCursor(); };
    tick();
  }

  heading() {
    const { view, page } = this;
    return el("header", { class: "result" },
      el("div", {}, el("h1", {}, view.name),
        el("ul", { class: "facts" }, [...view.facts, `head: ${view.head}`].map((fact) => el("li", {}, fact)))),
      view.preliminary ? el("button", { onclick: () => cancel(page.job) }, "Cancel") : null,
      el("button", { onclick: () => { page.setAddress(null); page.empty(); } }, icon("file"), page.backText));
  }

  // Other heads to try, if this one did not make the recording.
  otherHeads() {
    const { choice } = this.page.app;
    const others = choice.heads.filter((head) => head.ready && head.name !== this.view.head);
    this.others = others.map((head) => el("button", { class: "toggle", disabled: !this.settings.hasReport, onclick: () => { this.page.app.selectHead(head.id); this.separate("separate", this.settings.values()); } }, head.name));
    return el("p", { class: "choices" }, "Separate again with another head:", this.others, el("button", { class: "toggle", onclick: () => choice.openDialog() }, "Your own …"));
  }

  // --- directions and sources ------------------------------------------------------------------

  sphereCard() {
    const { view } = this;
    this.items = view.sources.map((source) => ({
      direction: source.direction, alternatives: source.alternative_directions, colour: source.colour, on: source.text_colour,
      label: String(source.number), name: source.label, region: source.region, unknown: !source.known,
    }));
    const description = view.sources.map((source) => [`${title(source)}: ${source.place}`, source.alternatives_text, source.uncertainty].filter(Boolean).join(", ")).join("; ");
    const big = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": `Sphere around the head; arrow keys rotate it. ${description}` });
    const top = el("canvas", { class: "small", role: "img", "aria-label": `From above. ${description}` });
    const side = el("canvas", { class: "small", role: "img", "aria-label": `From the right. ${description}` });
    queueMicrotask(() => {
      this.spheres = [new Sphere(big, this.orientation), new Sphere(top, { pitch: 90, yaw: 0, turns: false, small: true }), new Sphere(side, { pitch: 0, yaw: 90, turns: false, small: true })];
      this.parts.push(...this.spheres);
      this.setItems(this.items);
      this.page.app.sphere = this.spheres[0];
    });
    return el("section", { class: "card spheres", "aria-label": "Where the sounds come from" }, big,
      el("div", { class: "smalls" },
        el("figure", {}, el("figcaption", {}, "From above"), top),
        el("figure", {}, el("figcaption", {}, "From the right"), side)),
      el("ul", { class: "key" }, el("li", {}, "strong colour: 50 % region, pale: 90 % region"), view.truth.length ? el("li", { class: "true" }, "true direction") : null, el("li", {}, "drag or arrow keys: rotate")),
      pictureMenu(() => this.spherePictures([big, top, side])));
  }

  spherePictures(canvases) {
    const legend = [...this.view.sources.map((source) => ({ colour: source.colour, name: sourceCaption(source) })), { colour: "none", name: "strong colour: 50 % region, pale: 90 % region" }];
    return ["Sphere", "From above", "From the right"].map((name, i) => ({
      name, legend, title: this.view.name, parts: [{ canvas: canvases[i], title: i ? name : "" }], draw: () => this.spheres[i].paint(),
    }));
  }

  setItems(items, drags = null) {
    for (const sphere of this.spheres ?? []) sphere.set({ items, marks: this.view.truth, drags: sphere.turns ? drags : null });
  }

  // The cards of the sources, as after the separation.
  showSources() {
    const { view } = this;
    const disabled = Boolean(view.preliminary);
    this.correction = null;
    this.cards = view.sources.map((source, m) => {
      const i = m + 1, name = `source ${source.number}${source.label ? `, ${source.label}` : ""}`;
      const solo = el("button", { class: "toggle", "aria-pressed": "false", title: `Play only this source (key ${source.number})`, "aria-label": `Solo ${name}`, disabled, onclick: () => this.toggleSolo(i) }, "Solo");
      const mute = el("button", { class: "toggle", "aria-pressed": "false", "aria-label": `Mute ${name}`, disabled, onclick: () => this.toggleMute(i) }, "Mute");
      const card = el("section", { class: "card source", style: { "--colour": source.colour, "--on": source.text_colour }, "aria-label": title(source) },
        el("div", { class: "row" }, badge({ number: source.number, colour: source.colour, on: source.text_colour }),
          el("div", { class: "grow" }, source.label ? el("p", { class: "label" }, source.label) : null, el("p", { class: "place" }, source.place),
            source.alternatives_text ? el("p", { class: "note" }, source.alternatives_text) : null,
            el("p", { class: "note" }, `${source.uncertainty} · ${source.energy} of the energy${source.moves ? " · moving" : ""}`)),
          el("div", { class: "toggles" }, solo, mute)),
        source.doubts.length ? el("ul", { class: "doubts" }, source.doubts.map((doubt) => el("li", {}, prose(doubt)))) : null);
      return { card, solo, mute };
    });
    this.correct = el("button", { disabled: !this.settings.hasReport, onclick: () => { this.correction = new Correction(this); } }, icon("edit"), "Correct by hand");
    setContent(this.list, this.cards.length ? this.cards.map(({ card }) => card) : el("section", { class: "card" }, el("p", {}, "No source was found in this recording.")),
      el("p", { class: "choices" }, this.correct));
    this.setItems(this.items);
    this.updateControls();
  }

  showReport() {
    this.settings.showReport();
    for (const button of [this.correct, ...(this.others ?? [])]) button.disabled = false;
  }

  // Name a source. Names are written into report, tables and JSON, one change after the other.
  setName(m, name) {
    this.view.sources[m].label = this.items[m].name = name;
    this.naming = (this.naming ?? Promise.resolve()).then(() => this.writeNames());
  }

  async writeNames() {
    const { view, settings } = this;
    settings.showWriting();
    try {
      const { names, job } = await post(`recordings/${this.id}/names`, { names: view.sources.map(({ label }) => label) });
      view.sources.forEach((source, m) => { source.label = this.items[m].name = names[m]; });
      await pollJob(job, () => this.page.result === this);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      settings.problem.textContent = error.message;
    }
    settings.showReport();
  }

  // --- time ----------------------------------------------------------------------------------

  timeCard() {
    this.time = new TimeViews(this.view, {
      seek: (t) => this.player.seek(t),
      shown: (m) => this.player.mixed || this.view.preliminary || this.player.gains()[m + 1] !== 0,
      hover: (pointer) => { this.pointer = pointer; this.readOut(); },
      changed: () => this.toolbar.update(),
    });
    this.parts.push(this.time);
    this.readout = el("p", { class: "readout", "aria-hidden": "true" });
    const kinds = [["By source", "source"], ["Level", "level"], ["ILD", "ild"], ["IPD", "ipd"]].map(([name, value], i) => el("button", {
      class: "toggle", "aria-pressed": String(i === 0), title: { ild: "Interaural level difference", ipd: "Interaural phase difference" }[value],
      onclick: () => { this.time.setColours(value); kinds.forEach((kind, j) => kind.setAttribute("aria-pressed", String(i === j))); },
    }, name));
    return el("section", { class: "card", "aria-label": "Over time" }, this.toolbar.bar, this.readout, this.time.stack, this.toolbar.overview,
      el("div", { class: "segments left", role: "group", "aria-label": "Spectrogram" }, kinds), pictureMenu(() => [this.time.picture()]));
  }

  mapCard() {
    if (!this.view.sources.some(({ map }) => map)) return null;
    const maps = new PosteriorMaps(this.view);
    this.parts.push(maps);
    return maps.card;
  }

  // What is at the pointer, or else at the cursor: seconds, Hz, dB, and the direction of each source.
  readOut() {
    const t = this.pointer?.t ?? this.player.position(), hertz = this.pointer?.hertz;
    const parts = [`${t.toFixed(2)} s`];
    if (hertz !== undefined) parts.push(`${Math.round(hertz)} Hz`, decibels(this.levelAt(t, hertz)));
    setContent(this.readout, el("b", {}, parts.join(" · ")), this.view.sources.map((source) => el("span", { class: "chip" },
      badge({ number: source.number, colour: source.colour, on: source.text_colour }), this.describeAt(source, t))));
  }

  describeAt(source, t) {
    const at = rowAt(source.track, t);
    if (at === null || source.track.azimuth[at] === null) return "silent";
    const place = source.known ? formatDirection([source.track.azimuth[at], source.track.elevation[at]]) : "direction unknown";
    return `${place}, ${decibels(source.track.level_db[at])}`;
  }

  levelAt(t, hertz) {
    const { levels, start, end, low_hz: low, high_hz: high } = this.view.spectrogram;
    this.levels ??= Uint8Array.from(atob(levels.data), (c) => c.charCodeAt(0));
    const index = (share, n) => Math.max(0, Math.min(n - 1, Math.floor(share * n)));
    const row = index((hertz - low) / (high - low), levels.rows), column = index((t - start) / (end - start), levels.columns);
    return levels.low_db + levels.step_db * this.levels[row * levels.columns + column];
  }

  comparisonTable() {
    const rows = this.view.comparison;
    if (!rows?.length) return null;
    const head = ["Talker", "True direction", "Estimated direction", "Error", "SDR before", "SDR after"];
    return el("section", { class: "card", "aria-label": "Comparison with the ground truth" }, el("h2", {}, "Comparison with the ground truth"),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, head.map((name, i) => el("th", { scope: "col", class: i > 2 ? "num" : null }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, el("span", { class: "chip" }, badge({ number: row.number, colour: row.colour, on: row.text_colour }), row.name)),
          [row.true, row.estimated, row.error, row.before, row.after].map((cell, i) => el("td", { "data-name": head[i + 1], class: i > 1 ? "num" : null }, cell))))))));
  }

  // --- again ---------------------------------------------------------------------------------

  // Separate again, or a part; the result stays on the page if the studio refuses.
  async separate(path, values) {
    try {
      const done = await post(`recordings/${this.id}/${path}`, { head: this.page.app.head, ...values });
      await this.page.watch(done.recording, done.job, done.name);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.settings.problem.textContent = error.message;
    }
  }

  analyseSelection() {
    const { selection } = this.time.timeline;
    return selection && this.separate("selection", { ...this.settings.values(), ...selection });
  }

  // --- playback ------------------------------------------------------------------------------

  async load() {
    const { files } = this.view, { player } = this;
    try {
      await player.load([files.mixture, ...files.sounds].map((name) => fileAddress(this.id, name)));
      this.time.setSound(player.buffers[0]);
      this.transport.button.disabled = false;
    } catch (error) { if (this.page.result === this) this.transport.clock.textContent = error.message; }
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
    const { mixed, solo, mute } = this.player;
    this.transport.update();
    this.cards?.forEach((card, m) => {
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
    const t = this.player.position();
    if (t === this.last) return;
    this.last = t;
    if (this.player.playing) this.time.timeline.follow(t);
    this.time.setCursor(t, `${t.toFixed(1)} s; ${this.view.sources.map((source) => `${title(source)}: ${this.describeAt(source, t)}`).join("; ")}`);
    if (!this.pointer) this.readOut();
    if (!this.correction) this.updateMoving(t);
    this.transport.setClock(t);
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
    const { player, view } = this;
    if (!player.buffers.length) return false;
    const step = event.shiftKey ? 0.1 : 1;
    const moves = { ArrowLeft: player.position() - step, ArrowRight: player.position() + step, Home: 0, End: view.seconds };
    if (event.key === " ") player.toggle();
    else if (event.key in moves) player.seek(moves[event.key]);
    else if (event.key === "+" || event.key === "-") this.time.timeline.zoom(event.key === "+" ? 2 : 0.5, player.position());
    else if (event.key.toLowerCase() === "l") this.toolbar.toggleLoop();
    else if (view.preliminary) return false;
    else if (event.key.toLowerCase() === "a") player.select({ mixed: !player.mixed });
    else if (event.key === "0") player.select({ mixed: false, solo: new Set(), mute: new Set() });
    else if (/^[1-9]$/.test(event.key)) {
      const m = view.sources.findIndex((source) => source.number === Number(event.key));
      if (m < 0) return false;
      this.toggleSolo(m + 1);
    } else return false;
    return true;
  }
}

export const title = (source) => source.label || `Source ${source.number}`;

const decibels = (value) => `${Math.round(value)} dB`.replace("-", "−");

// The row of a track at a time; null before the first and after the last one.
function rowAt({ seconds }, t) {
  const width = seconds.length > 1 ? seconds[1] - seconds[0] : Infinity;
  let best = 0;
  for (let i = 1; i < seconds.length; i += 1) if (Math.abs(seconds[i] - t) < Math.abs(seconds[best] - t)) best = i;
  return Math.abs(seconds[best] - t) <= width ? best : null;
}

// The credible region of a tracked source: a disc.
export function disc(direction, radius) {
  return { cells: [direction], half: 0, cell_degrees: radius, inner: HALF * radius };
}
