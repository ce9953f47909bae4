// Charts over time: azimuth, elevation and level of each source, and the spectrogram, with a common
// cursor.

import { themeColours, el, onAppearanceChange, fitCanvas, setContent } from "./dom.js";

const LEFT = 46; // CSS pixels left of the plots, for the ticks
const BY_SOURCE = "in the colours of the sources";
export const KINDS = { source: "Spectrogram ", level: "Spectrogram ", ild: "Level difference ", ipd: "Phase difference " };
const SIZES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120];

export class TimeViews {
  // seek(seconds) moves the cursor; shown(m) is whether source m is played.
  constructor(view, { seek, shown }) {
    this.view = view;
    this.seek = seek;
    this.shown = shown;
    this.kind = "source"; // of the spectrogram: colours of the sources, "level", "ild" or "ipd"
    this.cursor = el("div", { class: "cursor", "aria-hidden": "true" });
    this.rows = [
      this.row("Azimuth", "with 90 % band", 120, (...a) => this.angles(...a, "azimuth", 180, [[-180, "180°"], [-90, "right"], [0, "front"], [90, "left"], [180, "180°"]])),
      this.row("Elevation", "with 90 % band", 84, (...a) => this.angles(...a, "elevation", 90, [[-90, "below"], [0, "0°"], [90, "above"]])),
      this.row("Level", "dB", 72, (...a) => this.levels(...a)),
      this.row("Spectrogram", BY_SOURCE, 150, (...a) => this.spectrogram(...a)),
    ];
    this.slider = el("input", {
      type: "range", class: "visually-hidden", min: 0, max: view.seconds, step: 0.1, value: 0, "aria-label": "Position in seconds",
      oninput: (event) => seek(Number(event.target.value)),
    });
    this.stack = el("div", { class: "stack" }, this.slider, this.rows.map((row) => row.figure), this.axis = el("canvas", { class: "axis", "aria-hidden": "true" }), this.cursor);
    this.images = Object.fromEntries([...["level", "ild", "ipd"].map((kind) => [kind, loadImage(view.images[kind])]), ...view.images.masks.map((uri, m) => [m, loadImage(uri)])]);
    Promise.all(Object.values(this.images).map((image) => image.decode().catch(() => {}))).then(() => this.draw());
    this.listen();
    this.stop = onAppearanceChange(this.stack, () => { this.inks = null; this.draw(); });
  }

  // Draw the spectrogram in the colours of the sources, its level, or the differences between the ears.
  setColours(kind) {
    this.kind = kind;
    const caption = this.rows.at(-1).figure.querySelector("figcaption");
    setContent(caption, KINDS[kind], this.scale(kind));
    this.draw();
  }

  // The colour scale of the spectrogram.
  scale(kind) {
    const scale = this.view.images.scales?.[kind];
    if (!scale) return el("span", {}, BY_SOURCE);
    return el("span", { class: "scale" }, scale.low, el("span", { class: "ramp", role: "img", "aria-label": `Colours from ${scale.low} to ${scale.high}`, style: { background: `linear-gradient(90deg, ${scale.stops.join(", ")}), var(--plot)` } }), scale.high,
      kind === "level" ? null : el("span", { class: "swatch missing" }), kind === "level" ? null : "not observed");
  }

  row(name, description, height, draw) {
    const canvas = el("canvas", { role: "img", style: { height: `${height}px` } });
    const figure = el("figure", {}, el("figcaption", {}, `${name} `, el("span", {}, description)), canvas);
    return { canvas, figure, draw, name };
  }

  listen() {
    let held = false;
    const go = (event) => {
      const box = this.stack.getBoundingClientRect();
      this.seek(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * this.view.seconds);
    };
    this.stack.addEventListener("pointerdown", (event) => {
      if (event.target.tagName !== "CANVAS") return;
      held = true;
      this.stack.setPointerCapture(event.pointerId);
      go(event);
    });
    this.stack.addEventListener("pointermove", (event) => held && go(event));
    this.stack.addEventListener("pointerup", () => { held = false; });
    this.stack.addEventListener("pointercancel", () => { held = false; });
  }

  setCursor(seconds) {
    const width = this.stack.clientWidth - LEFT;
    this.cursor.style.transform = `translateX(${LEFT + (seconds / this.view.seconds) * width}px)`;
    this.slider.value = seconds;
  }

  draw() {
    this.inks ??= themeColours();
    for (const row of this.rows) {
      const { context, width, height } = fitCanvas(row.canvas);
      if (!width) return;
      context.clearRect(0, 0, width, height);
      row.canvas.setAttribute("aria-label", `${row.name} over time`);
      context.fillStyle = this.inks.plot;
      context.fillRect(LEFT, 0, width - LEFT, height);
      context.save();
      row.draw(context, width, height);
      context.restore();
      context.strokeStyle = this.inks.line;
      context.strokeRect(LEFT + 0.5, 0.5, width - LEFT - 1, height - 1);
    }
    this.seconds();
  }

  x(seconds, width) { return LEFT + (seconds / this.view.seconds) * (width - LEFT); }

  tick(context, y, label, width, height) {
    context.strokeStyle = this.inks.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(LEFT, y);
    context.lineTo(width, y);
    context.stroke();
    context.fillStyle = this.inks.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = y < 8 ? "top" : y > height - 8 ? "bottom" : "middle";
    context.fillText(label, LEFT - 5, Math.max(1, Math.min(height - 1, y)));
  }

  angles(context, width, height, kind, limit, ticks) {
    const y = (value) => (height * (limit - value)) / (2 * limit);
    for (const [value, label] of ticks) this.tick(context, y(value), label, width, height);
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
    for (const [m, source] of this.view.sources.entries()) {
      if (!source.known) continue;
      const { track } = source;
      const strength = this.shown(m) ? 1 : 0.25;
      for (const run of runs(track, kind, this.view.seconds)) {
        const shape = run.map(({ t, value, band }) => [this.x(t, width), value, band]);
        context.fillStyle = source.colour;
        context.globalAlpha = 0.22 * strength;
        // A track that passes behind the head is drawn at both edges.
        for (const turn of kind === "azimuth" ? [-360, 0, 360] : [0]) {
          context.beginPath();
          for (const [x, value, band] of shape) context.lineTo(x, y(value + turn + band));
          for (const [x, value, band] of [...shape].reverse()) context.lineTo(x, y(value + turn - band));
          context.fill();
        }
        context.globalAlpha = strength;
        context.strokeStyle = source.colour;
        context.lineWidth = 2.5;
        context.lineCap = "round";
        for (const turn of kind === "azimuth" ? [-360, 0, 360] : [0]) {
          context.beginPath();
          for (const [x, value] of shape) context.lineTo(x, y(value + turn));
          context.stroke();
        }
      }
    }
  }

  levels(context, width, height) {
    const all = this.view.sources.flatMap((source) => source.track.level_db);
    const top = Math.ceil((Math.max(...all, -60) + 3) / 10) * 10, low = top - 50;
    const y = (value) => (height * (top - value)) / (top - low);
    for (const value of [low, low + 20, low + 40]) this.tick(context, y(value), `${value}`.replace("-", "−"), width, height);
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
    for (const [m, source] of this.view.sources.entries()) {
      context.globalAlpha = this.shown(m) ? 1 : 0.2;
      context.strokeStyle = source.colour;
      context.lineWidth = 1.5;
      context.lineJoin = "round";
      context.beginPath();
      const { seconds, level_db: level } = source.track;
      seconds.forEach((t, i) => context.lineTo(this.x(t, width), y(level[i])));
      context.stroke();
    }
  }

  spectrogram(context, width, height) {
    const p = this.kind === "ipd" ? this.view.images.ipd_range : this.view.spectrogram;
    const left = this.x(p.start, width), right = this.x(p.end, width);
    const draw = (image) => image.complete && image.naturalWidth && context.drawImage(image, left, 0, right - left, height);
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.save();
    context.clip();
    context.imageSmoothingQuality = "high";
    if (this.kind === "source") {
      for (const m of this.view.sources.keys()) {
        context.globalAlpha = this.shown(m) ? 1 : 0.06;
        draw(this.images[m]);
      }
    } else draw(this.images[this.kind]);
    context.restore();
    context.fillStyle = this.inks.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    const step = p.high_hz > 6000 ? 2000 : p.high_hz > 2500 ? 1000 : 500;
    context.textBaseline = "middle";
    for (let hertz = step, y = height; ; hertz += step) {
      y = height * (1 - (hertz - p.low_hz) / (p.high_hz - p.low_hz));
      if (y < 20) break; // leave room for the unit
      context.fillText(String(hertz / 1000), LEFT - 5, y);
    }
    context.fillText("kHz", LEFT - 5, 7);
  }

  seconds() {
    const { context, width } = fitCanvas(this.axis);
    if (!width) return;
    context.clearRect(0, 0, width, 20);
    context.fillStyle = this.inks.soft;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    const size = SIZES.find((step) => this.view.seconds / step < Math.max(width / 110, 2)) ?? 60;
    for (let t = 0; t <= this.view.seconds + 1e-6; t += size) {
      const x = this.x(t, width);
      context.textAlign = t === 0 ? "left" : x > width - 14 ? "right" : "center";
      context.fillText(`${Number(t.toFixed(2))} s`, x, 4);
    }
  }

  close() { this.stop(); }

  // All rows as one picture, with the time axis and the names of the sources.
  picture() {
    const scale = this.view.images.scales?.[this.kind];
    return {
      name: "Over time", title: this.view.name, draw: () => this.draw(),
      parts: [...this.rows.map(({ canvas, figure }) => ({ canvas, title: figure.querySelector("figcaption").firstChild.textContent })), { canvas: this.axis }],
      legend: [...this.view.sources.map(({ colour, number, place }) => ({ colour, name: `${number}: ${place}` })), ...(scale ? [{ stops: scale.stops, name: `${scale.low} … ${scale.high}` }] : [])],
    };
  }
}

function loadImage(uri) {
  const image = new Image();
  image.src = uri;
  return image;
}

// Runs of a track without a gap; a single row extends from beginning to end. Azimuths continue beyond
// 180° where a source passes behind the head.
function runs(track, kind, seconds) {
  const values = track[kind];
  const bands = track[`${kind}_band`];
  const points = track.seconds.map((t, i) => ({ t, value: values[i], band: bands[i] }));
  if (points.length === 1) return [[{ ...points[0], t: 0 }, { ...points[0], t: seconds }]];
  const found = [];
  let run = [];
  for (const point of points) {
    if (point.value === null) { if (run.length) found.push(run); run = []; continue; }
    const last = run.at(-1);
    if (last && kind === "azimuth") point.value += 360 * Math.round((last.value - point.value) / 360);
    run.push(point);
  }
  if (run.length) found.push(run);
  return found;
}
