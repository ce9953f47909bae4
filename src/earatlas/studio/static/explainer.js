// Page "How it works": cues of a direction, their manifold, the charts of PPAM, and steps of VESSL.

import { pollJob, post } from "./api.js";
import { angleSlider, themeColours, el, icon, onAppearanceChange, setSliders, formatDirection, fitCanvas, setContent } from "./dom.js";
import { DirectionSound, StepSound } from "./hearing.js";
import { pictureMenu } from "./pictures.js";
import { failure } from "./recording.js";
import { Sphere, vector } from "./sphere.js";

export function mount(root, app) {
  const page = new ExplainerPage(root, app);
  app.page = page;
  page.start();
  return () => page.close();
}

const AXIS = 44; // CSS pixels left of a picture, for its ticks
let cached = null; // the data do not change

class ExplainerPage {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.parts = [];
  }

  close() {
    this.closed = true;
    clearInterval(this.running);
    for (const part of this.parts) part.close();
    this.parts = [];
  }

  async start() {
    if (!cached) {
      const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" }), stage = el("p", { class: "note" }, " ");
      setContent(this.root, el("section", { class: "card drop busy" }, el("h1", {}, "Computing the demonstration"), bar, stage));
      try {
        const { job } = await post("explainer");
        const done = await pollJob(job, (state) => { bar.value = state.progress; stage.textContent = state.stage || " "; });
        if (done.state !== "done") throw new Error(done.error || "The demonstration could not be computed.");
        cached = done.result;
      } catch (error) { if (!this.closed) setContent(this.root, failure(error.message)); return; }
    }
    if (!this.closed) this.showContent(cached);
  }

  showContent(data) {
    this.data = data;
    this.vectors = data.directions.map(vector);
    setContent(this.root,
      el("header", { class: "result" }, el("div", {}, el("h1", {}, "How two ears locate a sound"),
        el("p", { class: "note" }, "After Deleforge, Forbes and Horaud (2015), with the simulated head. All values are computed by earatlas on this computer."))),
      this.directionCards(), this.vesslCard());
    this.moved(this.item);
    this.showStep(0);
  }

  // --- one direction ---------------------------------------------------------------------------

  directionCards() {
    const style = getComputedStyle(document.documentElement);
    this.item = { direction: [50, 15], colour: style.getPropertyValue("--source2").trim(), on: "#10151a", label: "♪" };
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "A sound on a sphere around the head; the sliders move it" });
    const cloud = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "The manifold of the cues in three dimensions; arrow keys rotate it" });
    this.levels = el("canvas", { class: "curve", role: "img", "aria-label": "Interaural level difference over frequency, observed and expected" });
    this.phases = el("canvas", { class: "curve", role: "img", "aria-label": "Interaural phase difference over frequency, observed and expected" });
    this.place = el("p", { class: "place" });
    this.sound = new DirectionSound(this.data.hearing);
    this.parts.push(this.sound);
    this.hearButton = el("button", { "aria-pressed": "false", class: "toggle", onclick: () => this.hear(!this.sound.playing) }, icon("play"), "Hear it");
    const kind = el("select", { "aria-label": "Sound", onchange: () => { this.sound.kind = kind.value; if (this.sound.playing) this.sound.play(this.chosen); } },
      el("option", { value: "voice" }, `the voice of ${this.data.hearing.name}`), el("option", { value: "noise" }, "bursts of noise"));
    this.note = el("p", { class: "note" });
    this.sliders = ["Azimuth", "Elevation"].map((name, axis) => angleSlider(axis, name, (value) => { this.item.direction[axis] = value; this.moved(this.item); }));
    queueMicrotask(() => {
      this.sphere = new Sphere(canvas, { drags: { moved: (item) => this.moved(item) }, picked: (direction) => { this.item.direction = direction; this.moved(this.item); this.hear(true); } });
      this.cloud = new Cloud(cloud, this.data);
      this.parts.push(this.sphere, this.cloud, { close: onAppearanceChange(this.levels, () => this.curves()) });
      this.sphere.set({ items: [this.item] });
      this.moved(this.item);
    });
    return el("div", {},
      el("div", { class: "three" },
        el("section", { class: "card", "aria-label": "A direction" }, el("h2", {}, "1. Move the sound and hear it"), canvas, this.place,
          el("p", { class: "choices" }, this.hearButton, kind),
          el("p", { class: "note" }, "Click on the sphere to hear a sound from there; use headphones."),
          el("div", { class: "sliders wide" }, this.sliders.map((one, i) => el("label", {}, el("span", {}, "↔↕"[i]), one)))),
        el("section", { class: "card", "aria-label": "Its cues" }, el("h2", {}, "2. Differences between the ears"),
          el("figure", {}, el("figcaption", {}, "Level ", el("span", {}, "right over left")), this.levels),
          el("figure", {}, el("figcaption", {}, "Phase ", el("span", {}, "right minus left, below 2 kHz")), this.phases),
          el("ul", { class: "key" }, el("li", { class: "dotted" }, "observed"), el("li", { class: "lined" }, "expected by PPAM")),
          pictureMenu(() => [{ name: "Differences between the ears", title: formatDirection(this.item.direction), draw: () => this.curves(), parts: [{ title: "Level difference", canvas: this.levels }, { title: "Phase difference", canvas: this.phases }], legend: [{ colour: this.item.colour, name: "observed" }, { colour: themeColours().ink, name: "expected by PPAM" }] }])),
        el("section", { class: "card", "aria-label": "The manifold" }, el("h2", {}, "3. The cues lie on a surface"), cloud,
          el("p", { class: "scale note" }, "elevation −90°", el("span", { class: "ramp", role: "img", "aria-label": "Colours from −90° to 90° of elevation", style: { background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(viridis).join(", ")})` } }), "90°"),
          el("p", { class: "note" }, `The level differences below 2 kHz, ${this.data.manifold.n_cues} values per direction, embedded in three dimensions by LTSA. Colours show the elevation. Neighbours stay neighbours: trustworthiness ${this.data.manifold.trustworthiness}, continuity ${this.data.manifold.continuity}.`),
          pictureMenu(() => [{ name: "Manifold", draw: () => this.cloud.paint(), parts: [{ title: "Level differences below 2 kHz, embedded by LTSA", canvas: cloud }], legend: [{ stops: [0, 0.25, 0.5, 0.75, 1].map(viridis), name: "elevation −90° … 90°" }] }]))),
      el("section", { class: "card", "aria-label": "Charts" }, el("h2", {}, "4. PPAM covers the surface with charts"), this.note));
  }

  moved(item) {
    if (!this.sphere) return;
    const v = vector(item.direction);
    const at = this.vectors.reduce((best, w, i) => { const near = v[0] * w[0] + v[1] * w[1] + v[2] * w[2]; return near > best[0] ? [near, i] : best; }, [-2, 0])[1];
    const { charts } = this.data;
    const lights = charts.centres.map((direction) => ({ direction, strength: 0 }));
    charts.nearest[at].forEach((k, i) => { lights[k].strength = charts.weights[at][i]; });
    this.place.textContent = formatDirection(item.direction);
    setSliders(this.sliders, item.direction);
    const active = charts.nearest[at].map((k, i) => [charts.weights[at][i], charts.centres[k]]).filter(([weight]) => weight >= 0.02);
    this.note.textContent = `Each of the ${charts.centres.length} dots on the sphere is the centre of a chart: a region in which the cues change linearly with the direction. Weights at this direction: ${active.map(([weight, centre]) => `chart at ${formatDirection(centre)}: ${Math.round(100 * weight)} %`).join("; ")}. Inverted, the charts give the probability of each direction for any observed cues, even at a few frequencies only.`;
    if (this.chosen !== at) this.sound.move(at);
    this.chosen = at;
    this.sphere.set({ lights, items: [item] });
    this.cloud.choose(at);
    this.curves();
  }

  // Start or stop the sound from the chosen direction.
  async hear(on) {
    this.hearButton.setAttribute("aria-pressed", String(on));
    setContent(this.hearButton, icon(on ? "stop" : "play"), on ? "Stop" : "Hear it");
    if (on) this.stopSteps?.();
    try { if (!on) this.sound.stop(); else if (!this.sound.playing) await this.sound.play(this.chosen); } catch (error) { this.place.textContent = error.message; }
  }

  curves() {
    const { frequencies_hz: hertz, observed, expected } = this.data;
    curve(this.levels, hertz.ild, observed.ild[this.chosen], expected.ild[this.chosen], 30, [[-20, "−20 dB"], [0, "0 dB"], [20, "20 dB"]], this.item.colour);
    curve(this.phases, hertz.ipd, observed.ipd[this.chosen].map((p) => p / Math.PI), expected.ipd[this.chosen].map((p) => p / Math.PI), 1.1, [[-1, "−π"], [0, "0"], [1, "π"]], this.item.colour, { wraps: true });
  }

  // --- several sources ---------------------------------------------------------------------------

  vesslCard() {
    const { vessl } = this.data;
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "Two sources on a sphere around the head" });
    this.masks = el("canvas", { class: "masks", role: "img", "aria-label": "Assignment of the bins to the sources" });
    this.energy = el("canvas", { class: "curve", role: "img", "aria-label": "Free energy over the steps" });
    this.step = el("input", { type: "range", min: 0, max: vessl.steps.length - 1, step: 1, value: 0, "aria-label": "Step", oninput: () => this.showStep(Number(this.step.value)) });
    this.stepText = el("p", { class: "note" });
    this.stepSound = new StepSound(vessl.rate);
    this.parts.push(this.stepSound);
    this.playedSound = null; // null, "mixture", or the number of a source
    this.hearButtons = ["mixture", ...vessl.names.keys()].map((what) => el("button", { class: "toggle", "aria-pressed": "false", "data-sound": what, onclick: () => this.hearStep(this.playedSound === what ? null : what) }, icon("play"), what === "mixture" ? "Mixture" : vessl.names[what]));
    this.stopSteps = () => this.hearStep(null);
    this.play = el("button", { onclick: () => this.run() }, icon("play"), "Play");
    this.images = vessl.steps.map((step) => step.masks.map((uri) => { const image = new Image(); image.src = uri; image.onload = () => this.drawStep(); return image; }));
    queueMicrotask(() => {
      this.vesslSphere = new Sphere(canvas);
      this.parts.push(this.vesslSphere, { close: onAppearanceChange(this.masks, () => this.drawStep()) });
      this.showStep(0);
    });
    return el("section", { class: "card", "aria-label": "VESSL" }, el("h2", {}, "5. Several sources at once: VESSL"),
      el("p", { class: "note" }, `${vessl.names.join(" and ")} talk at the same time. VESSL alternately assigns each time-frequency bin to a source and estimates the direction of each source. It starts from two deliberately wrong directions. Rings are the true directions.`),
      el("div", { class: "three" }, canvas,
        el("figure", {}, el("figcaption", {}, "Assignment ", el("span", {}, vessl.names.map((name, m) => el("span", { class: "swatch", style: { background: vessl.colours[m][0], margin: "0 .3rem 0 .6rem" }, title: name })).flatMap((swatch, m) => [swatch, vessl.names[m]]))), this.masks),
        el("figure", {}, el("figcaption", {}, "Free energy ", el("span", {}, "in nats over the steps, never decreases")), this.energy, el("p", { class: "choices spaced" }, this.play, this.step), this.stepText,
          el("div", { class: "choices spaced", role: "group", "aria-label": "Hear the estimate of this step" }, el("span", { class: "note" }, "Hear at this step"), this.hearButtons))),
      pictureMenu(() => [
        { name: "Directions", title: `Step ${this.shownStep + 1} of ${vessl.steps.length}`, draw: () => this.vesslSphere.paint(), parts: [{ canvas }], legend: vessl.names.map((name, m) => ({ colour: vessl.colours[m][0], name })) },
        { name: "Assignment and free energy", title: `Step ${this.shownStep + 1} of ${vessl.steps.length}`, draw: () => this.drawStep(), parts: [{ title: "Assignment", canvas: this.masks }, { title: "Free energy in nats", canvas: this.energy }], legend: vessl.names.map((name, m) => ({ colour: vessl.colours[m][0], name })) },
      ]));
  }

  // Play the mixture or the estimate of a source at the shown step; null: stop.
  async hearStep(what) {
    this.playedSound = what;
    this.hearButtons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.sound === String(what))));
    if (what === null) { this.stepSound.stop(); return; }
    if (this.sound.playing) this.hear(false);
    const { vessl } = this.data;
    try { await this.stepSound.play(what === "mixture" ? vessl.mixture : vessl.steps[this.shownStep].sounds[what]); } catch (error) { this.stepText.textContent = error.message; }
  }

  showStep(n) {
    const { vessl } = this.data;
    const changed = this.shownStep !== n;
    this.shownStep = n;
    if (changed && typeof this.playedSound === "number") this.hearStep(this.playedSound);
    this.step.value = n;
    const step = vessl.steps[n];
    const items = step.directions.map((direction, m) => ({ direction, colour: vessl.colours[m][0], on: vessl.colours[m][1], label: String(m + 1), region: step.regions[m],
      trail: [vessl.initial_directions[m], ...vessl.steps.slice(0, n + 1).map((one) => one.directions[m])] }));
    this.vesslSphere?.set({ items, marks: vessl.truth.map((direction, m) => ({ direction, colour: vessl.colours[m][0] })) });
    this.stepText.textContent = `Step ${n + 1} of ${vessl.steps.length}: ${step.directions.map(formatDirection).join("; ")}`;
    this.drawStep();
  }

  drawStep() {
    const n = this.shownStep ?? 0;
    const { context, width, height } = fitCanvas(this.masks);
    if (width) {
      context.clearRect(0, 0, width, height);
      const inks = themeColours(), right = width - AXIS, bottom = height - 18;
      context.fillStyle = inks.plot;
      context.fillRect(AXIS, 0, right, bottom);
      for (const image of this.images[n]) if (image.complete && image.naturalWidth) context.drawImage(image, AXIS, 0, right, bottom);
      this.maskAxes(context, width, bottom, inks);
    }
    const values = this.data.vessl.steps.map((step) => step.free_energy);
    const low = Math.min(...values), high = Math.max(...values);
    const scaled = values.map((value) => (2 * (value - low)) / (high - low || 1) - 1);
    const ticks = [[-1, low], [0, (low + high) / 2], [1, high]].map(([at, value]) => [at, `${Math.round(value / 1000)}k`.replace("-", "−")]);
    curve(this.energy, values.map((_, i) => i + 1), scaled, scaled, 1.15, ticks, themeColours().accent, { mark: n });
  }

  // Seconds and kHz of the assignment.
  maskAxes(c, width, bottom, inks) {
    const { seconds, max_hz: high } = this.data.vessl;
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = inks.soft;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (let hertz = 2000; hertz < high; hertz += 2000) c.fillText(String(hertz / 1000), AXIS - 5, bottom * (1 - hertz / high));
    c.fillText("kHz", AXIS - 5, 7);
    c.textBaseline = "bottom";
    for (let t = 0; t <= seconds; t += 1) { c.textAlign = t ? "center" : "left"; c.fillText(`${t} s`, AXIS + (t / seconds) * (width - AXIS), bottom + 17); }
    c.strokeStyle = inks.line;
    c.lineWidth = 1;
    c.strokeRect(AXIS + 0.5, 0.5, width - AXIS - 1, bottom - 1);
  }

  run() {
    clearInterval(this.running);
    this.showStep(0);
    const last = this.data.vessl.steps.length - 1;
    this.running = setInterval(() => { if (this.shownStep >= last) clearInterval(this.running); else this.showStep(this.shownStep + 1); }, 600);
  }
}

// The colour map viridis between five of its colours, for x from 0 to 1.
function viridis(x) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const i = Math.min(Math.floor(4 * x), 3), t = 4 * x - i;
  return `rgb(${stops[i].map((low, c) => Math.round(low + t * (stops[i + 1][c] - low))).join(" ")})`;
}

// Points in three dimensions, rotated like the sphere; `chosen` is the selected direction.
class Cloud extends Sphere {
  constructor(canvas, data) {
    super(canvas, { yaw: -40, pitch: 20 });
    this.data = data;
    this.shades = data.manifold.kept.map((i) => data.directions[i]).map(([, e]) => viridis((e + 90) / 180));
    this.draw();
  }

  choose(direction) {
    const at = this.data.manifold.kept.indexOf(direction);
    this.set({ chosen: at < 0 ? undefined : at });
  }

  paint() {
    const { context: c, width, height } = fitCanvas(this.canvas);
    if (!width || !this.data) return;
    Object.assign(this, { width, height });
    this.inks ??= themeColours();
    this.place();
    this.aim();
    c.clearRect(0, 0, width, height);
    const placed = this.data.manifold.coordinates.map((p, i) => [...this.at(p), i]).sort((a, b) => b[2] - a[2]);
    for (const [x, y, depth, i] of placed) {
      c.globalAlpha = 0.9 - 0.5 * Math.max(-1, Math.min(1, depth));
      c.fillStyle = this.shades[i];
      c.beginPath();
      c.arc(x, y, 2.6, 0, 2 * Math.PI);
      c.fill();
    }
    c.globalAlpha = 1;
    this.axes(c);
    if (this.chosen === undefined) return;
    const [x, y] = this.at(this.data.manifold.coordinates[this.chosen]);
    this.disc(c, x, y, 8, getComputedStyle(document.documentElement).getPropertyValue("--source2").trim());
  }

  // The three coordinates of LTSA, which have no unit; the lines are a quarter of the largest distance from the centre.
  axes(c) {
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.strokeStyle = c.fillStyle = this.inks.soft;
    c.lineWidth = 1;
    const [ox, oy] = this.at([0, 0, 0]), dx = 46 - ox, dy = this.height - 46 - oy; // in the lower left corner
    [[0.25, 0, 0], [0, 0.25, 0], [0, 0, 0.25]].forEach((end, i) => {
      const [x, y] = this.at(end), [lx, ly] = this.at(end.map((v) => 1.35 * v));
      c.beginPath();
      c.moveTo(ox + dx, oy + dy);
      c.lineTo(x + dx, y + dy);
      c.stroke();
      c.fillText(String(i + 1), lx + dx, ly + dy);
    });
  }
}

// Draw observed values as dots and expected ones as a line; `limit` is the end of the scale.
function curve(canvas, across, dots, line, limit, ticks, colour, { mark = null, wraps = false } = {}) {
  const { context: c, width, height } = fitCanvas(canvas);
  if (!width) return;
  const inks = themeColours(), left = AXIS, low = Math.min(...across), high = Math.max(...across);
  const x = (value) => left + 4 + ((value - low) / (high - low)) * (width - left - 10);
  const y = (value) => (height - 16) * (0.5 - value / (2 * limit)) + 2;
  c.clearRect(0, 0, width, height);
  c.font = "11px system-ui, sans-serif";
  c.fillStyle = inks.soft;
  c.strokeStyle = inks.line;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const [value, label] of ticks) {
    c.fillText(label, left - 4, y(value));
    c.beginPath();
    c.moveTo(left, y(value));
    c.lineTo(width, y(value));
    c.stroke();
  }
  c.textBaseline = "bottom";
  const unit = high > 100;
  const step = unit ? (high > 4000 ? 2000 : 500) : 3;
  for (let value = unit ? step : 1; value <= high; value += step) { c.textAlign = "center"; c.fillText(unit ? `${value / 1000} kHz` : String(value), Math.min(x(value), width - 18), height); }
  c.strokeStyle = inks.ink;
  c.lineWidth = 1.5;
  c.beginPath();
  across.forEach((value, i) => { if (wraps && i && Math.abs(line[i] - line[i - 1]) > limit) c.moveTo(x(value), y(line[i])); else c.lineTo(x(value), y(line[i])); });
  c.stroke();
  c.fillStyle = colour;
  across.forEach((value, i) => { c.beginPath(); c.arc(x(value), y(Math.max(-limit, Math.min(limit, dots[i]))), i === mark ? 6 : 2.6, 0, 2 * Math.PI); c.fill(); });
}
