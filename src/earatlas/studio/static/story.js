// The paper's story: cues of a direction, their manifold, charts that light up, VESSL at work.

import { followed, post } from "./api.js";
import { angleSlider, colours, el, icon, onLook, placeSliders, placeWords, sharp, show } from "./dom.js";
import { failure } from "./recording.js";
import { Sphere, vector } from "./sphere.js";

export function mount(root, app) {
  const page = new StoryPage(root, app);
  app.page = page;
  page.start();
  return () => page.close();
}

let kept = null; // the story does not change

class StoryPage {
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
    if (!kept) {
      const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" }), words = el("p", { class: "note" }, " ");
      show(this.root, el("section", { class: "card drop busy" }, el("h1", {}, "A head is being listened to"), bar, words));
      try {
        const { job } = await post("story");
        const done = await followed(job, (state) => { bar.value = state.share; words.textContent = state.words || " "; });
        if (done.state !== "done") throw new Error(done.error || "The story was not told.");
        kept = done.answer;
      } catch (error) { if (!this.closed) show(this.root, failure(error.message)); return; }
    }
    if (!this.closed) this.told(kept);
  }

  told(story) {
    this.story = story;
    this.vectors = story.directions.map(vector);
    show(this.root,
      el("header", { class: "result" }, el("div", {}, el("h1", {}, "How two ears tell where a sound is"),
        el("p", { class: "note" }, "After Deleforge, Forbes and Horaud (2014), with the simulated head. Everything here is computed now, by this package."))),
      this.first(), this.second());
    this.moved(this.item);
    this.at(0);
  }

  // --- one direction ---------------------------------------------------------------------------

  first() {
    const style = getComputedStyle(document.documentElement);
    this.item = { direction: [50, 15], colour: style.getPropertyValue("--source2").trim(), on: "#10151a", label: "♪" };
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "A sound on a sphere around the head; the sliders place it" });
    const cloud = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "The manifold of cues in three dimensions; arrow keys turn it" });
    this.levels = el("canvas", { class: "curve", role: "img" });
    this.phases = el("canvas", { class: "curve", role: "img" });
    this.words = el("p", { class: "place" });
    this.note = el("p", { class: "note" });
    this.sliders = ["Azimuth", "Elevation"].map((name, axis) => angleSlider(axis, name, (value) => { this.item.direction[axis] = value; this.moved(this.item); }));
    queueMicrotask(() => {
      this.ball = new Sphere(canvas, { drags: { moved: (item) => this.moved(item) } });
      this.cloud = new Cloud(cloud, this.story);
      this.parts.push(this.ball, this.cloud, { close: onLook(this.levels, () => this.curves()) });
      this.ball.set({ items: [this.item] });
      this.moved(this.item);
    });
    return el("div", {},
      el("div", { class: "three" },
        el("section", { class: "card", "aria-label": "A direction" }, el("h2", {}, "1. Drag the sound"), canvas, this.words,
          el("div", { class: "sliders wide" }, this.sliders.map((one, i) => el("label", {}, el("span", {}, "↔↕"[i]), one)))),
        el("section", { class: "card", "aria-label": "Its cues" }, el("h2", {}, "2. What the ears hear differently"),
          el("figure", {}, el("figcaption", {}, "Level ", el("span", {}, "right over left, dB")), this.levels),
          el("figure", {}, el("figcaption", {}, "Phase ", el("span", {}, "below 2 kHz, half turns")), this.phases),
          el("ul", { class: "key" }, el("li", { class: "dotted" }, "heard"), el("li", { class: "lined" }, "expected by PPAM"))),
        el("section", { class: "card", "aria-label": "The manifold" }, el("h2", {}, "3. All cues lie on a surface"), cloud,
          el("p", { class: "note" }, `The levels below 2 kHz, ${this.story.surface.numbers} numbers a direction, unrolled by LTSA to three. Colours are elevations. Neighbours stay neighbours: trustworthiness ${this.story.surface.trustworthiness}, continuity ${this.story.surface.continuity}.`))),
      el("section", { class: "card", "aria-label": "Charts" }, el("h2", {}, "4. PPAM covers it with charts"), this.note));
  }

  moved(item) {
    if (!this.ball) return;
    const v = vector(item.direction);
    const at = this.vectors.reduce((best, w, i) => { const near = v[0] * w[0] + v[1] * w[1] + v[2] * w[2]; return near > best[0] ? [near, i] : best; }, [-2, 0])[1];
    const { charts } = this.story;
    const lights = charts.centres.map((direction) => ({ direction, strength: 0 }));
    charts.nearest[at].forEach((k, i) => { lights[k].strength = charts.shares[at][i]; });
    this.words.textContent = placeWords(item.direction);
    placeSliders(this.sliders, item.direction);
    const active = charts.nearest[at].map((k, i) => [charts.shares[at][i], charts.centres[k]]).filter(([share]) => share >= 0.02);
    this.note.textContent = `Each of the ${charts.centres.length} dots on the sphere is the centre of a chart: a piece on which the cues change evenly with the direction. Here answer ${active.map(([share, centre]) => `the chart ${placeWords(centre)} with ${Math.round(100 * share)} %`).join(", ")}. Turned around, the charts say for any cues, even for those of a few frequencies alone, how probable each direction is.`;
    this.chosen = at;
    this.ball.set({ lights, items: [item] });
    this.cloud.choose(at);
    this.curves();
  }

  curves() {
    const { hertz, heard, expected } = this.story;
    curve(this.levels, hertz.ild, heard.ild[this.chosen], expected.ild[this.chosen], 30, [[-20, "left"], [0, "0"], [20, "right"]], this.item.colour);
    curve(this.phases, hertz.ipd, heard.ipd[this.chosen].map((p) => p / Math.PI), expected.ipd[this.chosen].map((p) => p / Math.PI), 1.05, [[-1, "−1"], [0, "0"], [1, "1"]], this.item.colour);
  }

  // --- several -----------------------------------------------------------------------------------

  second() {
    const { vessl } = this.story;
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": "Two sources being found on a sphere" });
    this.masks = el("canvas", { class: "masks", role: "img", "aria-label": "Which bin is whose" });
    this.energy = el("canvas", { class: "curve", role: "img", "aria-label": "The free energy over the steps" });
    this.step = el("input", { type: "range", min: 0, max: vessl.steps.length - 1, step: 1, value: 0, "aria-label": "Step", oninput: () => this.at(Number(this.step.value)) });
    this.stepWords = el("p", { class: "note" });
    this.play = el("button", { onclick: () => this.run() }, icon("play"), "Play");
    this.images = vessl.steps.map((step) => step.masks.map((uri) => { const image = new Image(); image.src = uri; image.onload = () => this.picture(); return image; }));
    queueMicrotask(() => {
      this.second_ball = new Sphere(canvas);
      this.parts.push(this.second_ball, { close: onLook(this.masks, () => this.picture()) });
      this.at(0);
    });
    return el("section", { class: "card", "aria-label": "VESSL" }, el("h2", {}, "5. Several at once: VESSL"),
      el("p", { class: "note" }, `${vessl.names.join(" and ")} talk at once. Whose is each bin, and where are they? Each answer helps the other, step by step; it begins with two directions that are wrong on purpose. Rings are the truth.`),
      el("div", { class: "three" }, canvas,
        el("figure", {}, el("figcaption", {}, "Whose is each bin? ", el("span", {}, "time across, frequency up")), this.masks),
        el("figure", {}, el("figcaption", {}, "Free energy ", el("span", {}, "never falls")), this.energy, el("p", { class: "choices spaced" }, this.play, this.step), this.stepWords)));
  }

  at(n) {
    const { vessl } = this.story;
    this.shownStep = n;
    this.step.value = n;
    const step = vessl.steps[n];
    const items = step.directions.map((direction, m) => ({ direction, colour: vessl.colours[m][0], on: vessl.colours[m][1], label: String(m + 1), region: step.regions[m],
      trail: [vessl.starts[m], ...vessl.steps.slice(0, n + 1).map((one) => one.directions[m])] }));
    this.second_ball?.set({ items, marks: vessl.truth.map((direction) => ({ direction })) });
    this.stepWords.textContent = `Step ${n + 1} of ${vessl.steps.length}: ${step.directions.map(placeWords).join("; ")}`;
    this.picture();
  }

  picture() {
    const n = this.shownStep ?? 0;
    const { context, width, height } = sharp(this.masks);
    if (width) {
      context.clearRect(0, 0, width, height);
      for (const image of this.images[n]) if (image.complete && image.naturalWidth) context.drawImage(image, 0, 0, width, height);
    }
    const values = this.story.vessl.steps.map((step) => step.free_energy);
    const low = Math.min(...values), high = Math.max(...values);
    const scaled = values.map((value) => (2 * (value - low)) / (high - low || 1) - 1);
    curve(this.energy, values.map((_, i) => i + 1), scaled, scaled, 1.15, [], colours().accent, n);
  }

  run() {
    clearInterval(this.running);
    this.at(0);
    const last = this.story.vessl.steps.length - 1;
    this.running = setInterval(() => { if (this.shownStep >= last) clearInterval(this.running); else this.at(this.shownStep + 1); }, 600);
  }
}

// Points in three dimensions, turned like the sphere; `chosen` is the direction that is held.
class Cloud extends Sphere {
  constructor(canvas, story) {
    super(canvas, { yaw: -40, pitch: 20 });
    this.story = story;
    this.shades = story.surface.kept.map((i) => story.directions[i]).map(([, e]) => `hsl(${Math.round(250 - ((e + 90) / 180) * 230)} 70% 50%)`);
    this.draw();
  }

  choose(direction) {
    const at = this.story.surface.kept.indexOf(direction);
    this.set({ chosen: at < 0 ? undefined : at });
  }

  paint() {
    const { context: c, width, height } = sharp(this.canvas);
    if (!width || !this.story) return;
    Object.assign(this, { width, height });
    this.inks ??= colours();
    this.place();
    this.aim();
    c.clearRect(0, 0, width, height);
    const placed = this.story.surface.places.map((p, i) => [...this.at(p), i]).sort((a, b) => b[2] - a[2]);
    for (const [x, y, depth, i] of placed) {
      c.globalAlpha = 0.9 - 0.5 * Math.max(-1, Math.min(1, depth));
      c.fillStyle = this.shades[i];
      c.beginPath();
      c.arc(x, y, 2.6, 0, 2 * Math.PI);
      c.fill();
    }
    c.globalAlpha = 1;
    if (this.chosen === undefined) return;
    const [x, y] = this.at(this.story.surface.places[this.chosen]);
    this.disc(c, x, y, 8, getComputedStyle(document.documentElement).getPropertyValue("--source2").trim());
  }
}

// Values over a growing axis: dots as heard, a line as expected; `limit` is the end of the scale.
function curve(canvas, across, dots, line, limit, ticks, colour, mark = null) {
  const { context: c, width, height } = sharp(canvas);
  if (!width) return;
  const inks = colours(), left = 34, low = Math.min(...across), high = Math.max(...across);
  const x = (value) => left + 4 + ((value - low) / (high - low)) * (width - left - 10);
  const y = (value) => (height - 16) * (0.5 - value / (2 * limit)) + 2;
  c.clearRect(0, 0, width, height);
  c.font = "11px system-ui, sans-serif";
  c.fillStyle = inks.soft;
  c.strokeStyle = inks.line;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const [value, words] of ticks) {
    c.fillText(words, left - 4, y(value));
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
  across.forEach((value, i) => { if (i && Math.abs(line[i] - line[i - 1]) > limit) c.moveTo(x(value), y(line[i])); else c.lineTo(x(value), y(line[i])); });
  c.stroke();
  c.fillStyle = colour;
  across.forEach((value, i) => { c.beginPath(); c.arc(x(value), y(Math.max(-limit, Math.min(limit, dots[i]))), i === mark ? 6 : 2.6, 0, 2 * Math.PI); c.fill(); });
}
