// Azimuth and elevation of live sources over the last seconds, with the 90 % bands of their marginals.

import { el, fitCanvas, onAppearanceChange, themeColours } from "./dom.js";
import { pictureMenu, saveText } from "./pictures.js";

const LEFT = 58, BOTTOM = 20, RIGHT = 50; // CSS pixels for the ticks and the numbers of the sources
const SPAN = 30; // seconds that are drawn
const KEPT = 600; // seconds that can be saved
const GAP = 2; // seconds without a point that break a line
const ROWS = [
  { name: "Azimuth", axis: 0, limit: 180, ticks: [[180, "180°"], [90, "90° left"], [0, "0°"], [-90, "90° right"], [-180, "180°"]] },
  { name: "Elevation", axis: 1, limit: 90, ticks: [[90, "90°"], [45, "45°"], [0, "0°"], [-45, "−45°"], [-90, "−90°"]] },
];

export class History {
  constructor() {
    this.points = new Map(); // by source id: {colour, on, points: [{t, direction, bands}]}
    this.time = 0;
    this.rows = ROWS.map((row) => ({ ...row, canvas: el("canvas", { class: "history", role: "img", "aria-label": `${row.name} of the sources over the last ${SPAN} seconds` }) }));
    this.menu = pictureMenu(() => [this.picture()]);
    this.csv = el("button", { class: "toggle", onclick: () => this.save() }, "Save tracks (CSV)");
    this.card = el("section", { class: "card", "aria-label": "History" },
      this.rows.map(({ name, canvas }) => el("figure", {}, el("figcaption", {}, `${name} `, el("span", {}, `last ${SPAN} s, with 90 % band`)), canvas)),
      el("p", { class: "choices spaced" }, this.csv), this.menu);
    this.stop = onAppearanceChange(this.card, () => this.draw());
  }

  close() { this.stop(); }

  add(time, sources) {
    this.time = time;
    for (const { id, active, known, direction, bands, radius_90: radius, level_db: level, colour, text_colour: on } of sources) {
      if (!this.points.has(id)) this.points.set(id, { colour, on, points: [] });
      const { points } = this.points.get(id);
      if (active && known) points.push({ t: time, direction, bands, radius, level });
      while (points.length && points[0].t < time - KEPT) points.shift();
    }
    this.draw();
  }

  draw() {
    const inks = themeColours();
    for (const row of this.rows) this.drawRow(row, inks);
  }

  drawRow({ canvas, axis, limit, ticks }, inks) {
    const { context: c, width, height } = fitCanvas(canvas);
    if (!width) return;
    const end = Math.max(this.time, SPAN), bottom = height - (axis ? BOTTOM : 6), top = 6;
    const x = (t) => LEFT + ((t - end + SPAN) / SPAN) * (width - LEFT - RIGHT);
    const y = (value) => top + ((limit - value) / (2 * limit)) * (bottom - top);
    c.clearRect(0, 0, width, height);
    c.fillStyle = inks.plot;
    c.fillRect(LEFT, top, width - LEFT, bottom - top);
    c.font = "11px system-ui, sans-serif";
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const [value, label] of ticks) {
      c.strokeStyle = inks.line;
      c.beginPath();
      c.moveTo(LEFT, y(value));
      c.lineTo(width, y(value));
      c.stroke();
      c.fillStyle = inks.soft;
      c.fillText(label, LEFT - 4, y(value));
    }
    if (axis) this.times(c, x, end, height, inks);
    c.save();
    c.beginPath();
    c.rect(LEFT, top - 5, width - LEFT, bottom - top + 10);
    c.clip();
    const badges = []; // so that numbers do not hide each other
    for (const [id, source] of this.points) this.line(c, id, source, { axis, limit, x, y, badges, begin: end - SPAN });
    c.restore();
  }

  times(c, x, end, height, inks) {
    c.fillStyle = inks.soft;
    c.textAlign = "center";
    c.textBaseline = "bottom";
    for (let t = Math.ceil((end - SPAN) / 5) * 5; t <= end; t += 5) c.fillText(`${t} s`, Math.max(x(t), LEFT + 10), height);
    c.textBaseline = "middle";
  }

  line(c, id, { colour, on, points }, { axis, limit, x, y, badges, begin }) {
    const shown = points.filter(({ t }) => t >= begin - GAP);
    if (!shown.length) return;
    const runs = [[]];
    shown.forEach((point, i) => {
      const last = shown[i - 1];
      // A step of more than half a turn passes behind the head.
      if (last && (point.t - last.t > GAP || (axis === 0 && Math.abs(point.direction[0] - last.direction[0]) > 180))) runs.push([]);
      runs.at(-1).push(point);
    });
    for (const run of runs) {
      const clipped = (value) => y(Math.max(-limit, Math.min(limit, value)));
      c.fillStyle = colour;
      c.globalAlpha = 0.22;
      c.beginPath();
      for (const { t, direction, bands } of run) c.lineTo(x(t), clipped(direction[axis] + bands[axis]));
      for (const { t, direction, bands } of [...run].reverse()) c.lineTo(x(t), clipped(direction[axis] - bands[axis]));
      c.fill();
      c.globalAlpha = 1;
      c.strokeStyle = colour;
      c.lineWidth = 2.5;
      c.lineCap = "round";
      c.beginPath();
      for (const { t, direction } of run) c.lineTo(x(t), y(direction[axis]));
      c.stroke();
      if (run.length > 1) continue;
      c.beginPath();
      c.arc(x(run[0].t), y(run[0].direction[axis]), 2, 0, 2 * Math.PI);
      c.fillStyle = colour;
      c.fill();
    }
    const { t, direction } = shown.at(-1);
    const by = y(direction[axis]);
    let bx = x(t) + 13;
    while (badges.some(([ox, oy]) => Math.hypot(ox - bx, oy - by) < 19)) bx += 20;
    badges.push([bx, by]);
    c.beginPath();
    c.arc(bx, by, 9, 0, 2 * Math.PI);
    c.fillStyle = colour;
    c.fill();
    c.fillStyle = on;
    c.font = "700 11px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(String(id), bx, by + 0.5);
  }

  picture() {
    return {
      name: "History", title: "Live directions", draw: () => this.draw(), parts: this.rows.map(({ name, canvas }) => ({ title: name, canvas })),
      legend: [...this.points].map(([id, { colour }]) => ({ colour, name: `Source ${id}` })),
    };
  }

  save() {
    const lines = ["source,time_seconds,azimuth_degrees,elevation_degrees,azimuth_band_90_degrees,elevation_band_90_degrees,radius_90_degrees,level_db"];
    for (const [id, { points }] of this.points) for (const { t, direction, bands, radius, level } of points) lines.push([id, t.toFixed(3), ...direction, ...bands, radius, level ?? ""].join(","));
    saveText(`${lines.join("\n")}\n`, "live_tracks.csv", "text/csv");
  }
}
