// Charts over time: waveform, azimuth, elevation and level of each source, and the spectrogram, with a
// common cursor, zoom and selection.

import { themeColours, el, onAppearanceChange, fitCanvas, setContent, sourceCaption } from "./dom.js";
import { LEFT, Peaks, Timeline } from "./timeline.js";

const BY_SOURCE = "in the colours of the sources";
const KINDS = { source: "Spectrogram ", level: "Spectrogram ", ild: "Level difference ", ipd: "Phase difference " };
const SIZES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120];

export class TimeViews {
  // seek(seconds) moves the cursor; shown(m) is whether source m is played; hover({ t, hertz }) gets the
  // pointer, or null; changed() is called after zoom and selection.
  constructor(view, { seek, shown, hover, changed }) {
    this.view = view;
    this.shown = shown;
    this.timeline = new Timeline(view.seconds, () => { this.draw(); this.placeCursor(); changed(); });
    this.peaks = null; // of both ears, once the sound is loaded
    this.at = 0; // seconds, of the cursor
    this.kind = "source"; // of the spectrogram: colours of the sources, "level", "ild" or "ipd"
    this.cursor = el("div", { class: "cursor", "aria-hidden": "true" });
    this.selected = el("div", { class: "selected", "aria-hidden": "true" });
    this.rows = [
      this.row("Waveform", "left and right ear", 76, (...a) => this.waveform(...a)),
      this.row("Azimuth", "with 90 % band", 120, (...a) => this.angles(...a, "azimuth", 180, [[-180, "180°"], [-90, "90° right"], [0, "0° front"], [90, "90° left"], [180, "180°"]])),
      this.row("Elevation", "with 90 % band", 84, (...a) => this.angles(...a, "elevation", 90, [[-90, "−90°"], [0, "0°"], [90, "90°"]])),
      this.row("Level", "dB", 72, (...a) => this.levels(...a)),
      this.row("Spectrogram", BY_SOURCE, 150, (...a) => this.spectrogram(...a)),
    ];
    this.slider = el("input", {
      type: "range", class: "visually-hidden", min: 0, max: view.seconds, step: 0.01, value: 0, "aria-label": "Position in seconds",
      oninput: (event) => seek(Number(event.target.value)),
    });
    this.stack = el("div", { class: "stack" }, this.slider, this.rows.map((row) => row.figure), this.axis = el("canvas", { class: "axis", "aria-hidden": "true" }), this.selected, this.cursor);
    this.images = Object.fromEntries([...["level", "ild", "ipd"].map((kind) => [kind, loadImage(view.images[kind])]), ...view.images.masks.map((uri, m) => [m, loadImage(uri)])]);
    Promise.all(Object.values(this.images).map((image) => image.decode().catch(() => {}))).then(() => this.draw());
    this.timeline.listen(this.stack, { seek, hover: (event, t) => hover(event && { t, ...this.frequency(event) }) });
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

  setSound(buffer) {
    this.peaks = [0, 1].map((c) => new Peaks(buffer.getChannelData(Math.min(c, buffer.numberOfChannels - 1)), buffer.sampleRate));
    this.draw();
  }

  // Seconds and frequencies of the spectrogram; phase differences have their own.
  get range() { return this.kind === "ipd" ? this.view.images.ipd_range : this.view.spectrogram; }

  // The frequency under the pointer, if it is on the spectrogram.
  frequency(event) {
    const box = this.rows.at(-1).canvas.getBoundingClientRect();
    const share = (box.bottom - event.clientY) / box.height;
    if (share < 0 || share > 1) return {};
    const { low_hz: low, high_hz: high } = this.range;
    return { hertz: low + share * (high - low) };
  }

  setCursor(seconds, text) {
    this.at = seconds;
    this.slider.value = seconds;
    this.slider.setAttribute("aria-valuetext", text);
    this.placeCursor();
  }

  placeCursor() {
    const width = this.stack.clientWidth, { timeline } = this;
    const place = (part, t) => { part.style.transform = `translateX(${timeline.x(t, width)}px)`; };
    this.cursor.hidden = this.at < timeline.start - 1e-6 || this.at > timeline.end + 1e-6;
    place(this.cursor, this.at);
    const { selection } = timeline;
    const [from, to] = selection ? [Math.max(selection.start, timeline.start), Math.min(selection.end, timeline.end)] : [0, 0];
    // A tint of everything that is visible would only change the colours.
    this.selected.hidden = to <= from || (from <= timeline.start && to >= timeline.end);
    place(this.selected, from);
    this.selected.style.width = `${timeline.x(to, width) - timeline.x(from, width)}px`;
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
    this.placeCursor();
  }

  x(seconds, width) { return this.timeline.x(seconds, width); }

  clip(context, width, height) {
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
  }

  // The left ear above and the right ear below.
  waveform(context, width, height) {
    const half = height / 2;
    context.fillStyle = this.inks.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    ["left", "right"].forEach((ear, c) => context.fillText(ear, LEFT - 5, half * (c + 0.5)));
    this.tick(context, half, "", width, height);
    if (!this.peaks) return;
    this.clip(context, width, height);
    context.fillStyle = this.inks.accent;
    const largest = Math.max(...this.peaks.map((one) => Math.max(...one.between(0, this.view.seconds).map(Math.abs))), 1e-6);
    const t = (x) => this.timeline.t(x, width);
    for (const [c, peaks] of this.peaks.entries()) {
      const middle = half * (c + 0.5);
      for (let x = LEFT; x < width; x += 1) {
        const [low, high] = peaks.between(t(x), t(x + 1)).map((v) => (0.47 * half * v) / largest);
        context.fillRect(x, middle - high, 1, Math.max(high - low, 1));
      }
    }
  }

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
    this.clip(context, width, height);
    const lines = [];
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
        if (run[0].t < this.timeline.end && run.at(-1).t > this.timeline.start) lines.push([source, shape[0][0], y(shape[0][1])]);
      }
    }
    this.numbers(context, lines, height);
  }

  // The number of each source where its line becomes visible first, so that colour is not needed.
  numbers(context, lines, height) {
    const done = new Set(), taken = [];
    for (const [source, at, middle] of lines) {
      if (done.has(source)) continue;
      done.add(source);
      let x = Math.max(at, LEFT) + 9;
      const y = Math.max(8, Math.min(height - 8, middle));
      while (taken.some(([tx, ty]) => Math.hypot(tx - x, ty - y) < 16)) x += 16;
      taken.push([x, y]);
      context.globalAlpha = 1;
      context.fillStyle = source.colour;
      context.beginPath();
      context.arc(x, y, 7.5, 0, 2 * Math.PI);
      context.fill();
      context.fillStyle = source.text_colour;
      context.font = "700 10px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(String(source.number), x, y + 0.5);
    }
  }

  levels(context, width, height) {
    const all = this.view.sources.flatMap((source) => source.track.level_db);
    const top = Math.ceil((Math.max(...all, -60) + 3) / 10) * 10, low = top - 50;
    const y = (value) => (height * (top - value)) / (top - low);
    for (const value of [low, low + 20, low + 40]) this.tick(context, y(value), `${value}`.replace("-", "−"), width, height);
    this.clip(context, width, height);
    const lines = [];
    for (const [m, source] of this.view.sources.entries()) {
      context.globalAlpha = this.shown(m) ? 1 : 0.2;
      context.strokeStyle = source.colour;
      context.lineWidth = 1.5;
      context.lineJoin = "round";
      context.beginPath();
      const { seconds, level_db: level } = source.track;
      const ends = seconds.length === 1 ? [0, this.view.seconds] : seconds; // as in `runs`
      const points = ends.map((t, i) => [this.x(t, width), y(level[i] ?? level[0])]);
      for (const [x, at] of points) context.lineTo(x, at);
      context.stroke();
      lines.push([source, ...(points.find(([x, at]) => x >= LEFT && at < height) ?? points[0])]);
    }
    this.numbers(context, lines, height);
  }

  spectrogram(context, width, height) {
    const p = this.range;
    const left = this.x(p.start, width), right = this.x(p.end, width); // partly outside when zoomed
    const draw = (image) => image.complete && image.naturalWidth && context.drawImage(image, left, 0, right - left, height);
    context.save();
    this.clip(context, width, height);
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
    const { start, end, span } = this.timeline;
    const size = SIZES.find((step) => span / step < Math.max(width / 110, 2)) ?? 60;
    for (let t = Math.ceil(start / size - 1e-6) * size; t <= end + 1e-6; t += size) {
      const x = this.x(t, width);
      context.textAlign = x < LEFT + 14 ? "left" : x > width - 14 ? "right" : "center";
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
      legend: [...this.view.sources.map((source) => ({ colour: source.colour, name: sourceCaption(source) })), ...(scale ? [{ stops: scale.stops, name: `${scale.low} … ${scale.high}` }] : [])],
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
