// A head in a sphere of directions, drawn on a canvas; rotated by mouse, touch and keys.
//
// x is front, y left, z up. The camera looks along `f`, with `r` to its right and `u` up: seen from
// behind and above, left is left and the front is at the top, as on the report's compass.

import { fitCanvas, onAppearanceChange, themeColours } from "./dom.js";

const RADIANS = Math.PI / 180;
const HOME = { yaw: -18, pitch: 32 };
const STEP = 5; // degrees per key press
const HEAD = 0.24;

export const vector = ([azimuth, elevation]) => {
  const a = azimuth * RADIANS, e = elevation * RADIANS;
  return [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
};
export const direction = ([x, y, z]) => [Math.atan2(y, x) / RADIANS, Math.asin(Math.max(-1, Math.min(1, z))) / RADIANS];

const ring = (at) => Array.from({ length: 73 }, (_, i) => at(5 * i));
const PARALLELS = [-60, -30, 30, 60].map((e) => ring((a) => vector([a, e])));
const MERIDIANS = [0, 30, 60, 90, 120, 150].map((a) => ring((e) => {
  const t = e * RADIANS, b = a * RADIANS;
  return [Math.cos(t) * Math.cos(b), Math.cos(t) * Math.sin(b), Math.sin(t)];
}));
const EQUATOR = ring((a) => vector([a, 0]));
const LABELS = [["front", [0, 0]], ["left", [90, 0]], ["behind", [180, 0]], ["right", [-90, 0]], ["above", [0, 90]]];

export class Sphere {
  // items: {direction, alternatives, colour, on, label, name, region, faint, trail, unknown}, of which unknown ones are not
  // drawn; marks: true directions.
  constructor(canvas, { yaw = HOME.yaw, pitch = HOME.pitch, turns = true, drags = null, picked = null, labels = true, small = false } = {}) {
    this.canvas = canvas;
    this.home = { yaw, pitch };
    Object.assign(this, { yaw, pitch, turns, drags, picked, labels, small }); // picked(direction): a click on the near side
    this.items = [];
    this.marks = [];
    this.points = [];
    this.lights = [];
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.asked = 0;
    this.frames = 0;
    this.stop = onAppearanceChange(canvas, () => { this.inks = null; this.draw(); });
    if (turns || drags) this.listen();
  }

  set(values) { Object.assign(this, values); this.draw(); }

  draw() {
    if (!this.asked) this.asked = requestAnimationFrame(() => { this.asked = 0; this.paint(); });
  }

  close() { this.stop(); cancelAnimationFrame(this.asked); }

  turn(yaw, pitch) {
    this.yaw = yaw;
    this.pitch = Math.max(-90, Math.min(90, pitch));
    this.draw();
  }

  aim() {
    const a = this.yaw * RADIANS, b = this.pitch * RADIANS;
    const [ca, sa, cb, sb] = [Math.cos(a), Math.sin(a), Math.cos(b), Math.sin(b)];
    this.f = [ca * cb, sa * cb, -sb];
    this.r = [sa, -ca, 0];
    this.u = [ca * sb, sa * sb, cb];
  }

  // Screen position and depth (positive: on the far side) of a vector.
  at([x, y, z]) {
    const { f, r, u, R, cx, cy } = this;
    return [cx + R * (x * r[0] + y * r[1]), cy - R * (x * u[0] + y * u[1] + z * u[2]), x * f[0] + y * f[1] + z * f[2]];
  }

  place() {
    const { width, height } = this;
    this.cx = width / 2;
    this.cy = height / 2;
    // Small spheres have room for labels at their sides.
    this.R = Math.max(this.small ? Math.min(width / 2 - 34, height / 2 - 16) : Math.min(width, height) / 2 - 30, 10);
  }

  paint() {
    const { context: c, width, height } = fitCanvas(this.canvas);
    if (!width || !height) return;
    Object.assign(this, { width, height });
    this.inks ??= themeColours();
    this.place();
    this.aim();
    c.clearRect(0, 0, width, height);
    this.background(c);
    this.grid(c, true);
    this.dots(c, true);
    if (!this.points.length) this.words(c, true);
    this.chartCentres(c);
    const shown = this.items.filter((item) => !item.unknown).map((item) => ({ item, where: this.at(vector(item.direction)) }));
    for (const { item } of shown) this.trail(c, item);
    for (const { item, where } of shown) this.region(c, item, where[2] > 0 ? 0.75 : 1);
    for (const { item, where } of shown) if (where[2] > 0) this.stalk(c, item, where);
    this.head(c);
    this.grid(c, false);
    this.dots(c, false);
    if (this.points.length) this.words(c, true); // dots would hide them
    this.words(c, false);
    for (const { item, where } of shown) if (where[2] <= 0) this.stalk(c, item, where);
    for (const mark of this.marks) this.truth(c, mark);
    shown.sort((a, b) => b.where[2] - a.where[2]);
    for (const { item } of shown) this.alternatives(c, item);
    for (const { item, where } of shown) this.badge(c, item, where);
    this.frames += 1;
  }

  background(c) {
    const { cx, cy, R, inks } = this;
    const shade = c.createRadialGradient(cx - 0.35 * R, cy - 0.45 * R, 0.1 * R, cx, cy, R);
    shade.addColorStop(0, inks.card);
    shade.addColorStop(1, inks.page);
    c.fillStyle = shade;
    c.strokeStyle = inks.line;
    c.lineWidth = 1.5;
    c.beginPath();
    c.arc(cx, cy, R, 0, 2 * Math.PI);
    c.fill();
    c.stroke();
  }

  grid(c, far) {
    const { inks } = this;
    const trace = (lines, width, alpha) => {
      c.beginPath();
      for (const line of lines) {
        let drawing = false;
        for (const v of line) {
          const [x, y, depth] = this.at(v);
          if ((depth > 0) === far) { if (drawing) c.lineTo(x, y); else c.moveTo(x, y); drawing = true; } else drawing = false;
        }
      }
      c.strokeStyle = inks.soft;
      c.globalAlpha = alpha * (far ? 0.5 : 1);
      c.lineWidth = width;
      c.stroke();
      c.globalAlpha = 1;
    };
    trace([...PARALLELS, ...MERIDIANS], 1, 0.22);
    trace([EQUATOR], 1.5, 0.6);
  }

  words(c, far) {
    if (!this.labels) return;
    const { inks } = this;
    c.font = `${this.small ? 11 : 13}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillStyle = inks.soft;
    for (const [word, where] of LABELS) {
      const [x, y, depth] = this.at(vector(where).map((v) => 1.0 * v));
      if ((depth > 0.01) !== far) continue;
      // Labels are slightly outside the sphere, and within the canvas.
      const dx = x - this.cx, dy = y - this.cy, length = Math.hypot(dx, dy) || 1;
      const inside = length < 0.35 * this.R;
      if (inside && this.small) continue;
      const away = inside ? 0 : 13;
      const half = c.measureText(word).width / 2 + 3;
      const tx = Math.max(half, Math.min(this.width - half, x + (dx / length) * (away + (Math.abs(dx) / length) * half * 0.6)));
      const ty = Math.max(9, Math.min(this.height - 9, y + (dy / length) * away));
      c.globalAlpha = far ? 0.8 : 1;
      c.lineWidth = this.points.length ? 5 : 3;
      c.strokeStyle = inks.card;
      c.strokeText(word, tx, ty);
      c.fillText(word, tx, ty);
      c.globalAlpha = 1;
    }
  }

  dots(c, far) {
    if (!this.points.length) return;
    c.fillStyle = this.inks.accent;
    c.globalAlpha = far ? 0.25 : 0.8;
    c.beginPath();
    for (const point of this.points) {
      const [x, y, depth] = this.at(vector(point));
      if ((depth > 0) === far) { c.moveTo(x + 1.6, y); c.arc(x, y, 1.6, 0, 2 * Math.PI); }
    }
    c.fill();
    c.globalAlpha = 1;
  }

  // Centres of charts; their size and opacity show their weight.
  chartCentres(c) {
    c.fillStyle = this.inks.accent;
    for (const { direction: place, strength } of this.lights) {
      const [x, y, depth] = this.at(vector(place));
      c.globalAlpha = (depth > 0 ? 0.55 : 0.8) * (0.3 + 0.7 * strength);
      c.beginPath();
      c.arc(x, y, 2.5 + 9 * strength, 0, 2 * Math.PI);
      c.fill();
    }
    c.globalAlpha = 1;
  }

  // The cells of a credible region as discs on the sphere, drawn as one path with one shade.
  region(c, item, strength) {
    const region = item.region;
    if (!region || item.hidden) return;
    region.vectors ??= region.cells.map(vector);
    const [whole, half] = this.dark.matches ? [0.5, 0.75] : [0.34, 0.55];
    const layers = [[region.vectors.length, whole, region.cell_degrees], [region.half, half, region.cell_degrees]];
    if (region.inner) layers[1] = [1, half, region.inner];
    for (const [count, alpha, degrees] of layers) {
      const rho = Math.min(Math.max(degrees, 0.6), 89) * RADIANS;
      const size = this.R * Math.sin(rho), near = Math.cos(rho);
      c.beginPath();
      for (let i = 0; i < count; i += 1) {
        const [x, y, depth] = this.at(region.vectors[i]);
        const px = this.cx + near * (x - this.cx), py = this.cy + near * (y - this.cy);
        const turn = Math.atan2(y - this.cy, x - this.cx);
        c.moveTo(px + size * Math.abs(depth) * Math.cos(turn), py + size * Math.abs(depth) * Math.sin(turn));
        c.ellipse(px, py, size * Math.abs(depth), size, turn, 0, 2 * Math.PI);
      }
      c.fillStyle = item.colour;
      c.globalAlpha = alpha * strength * (item.faint ?? 1);
      c.fill();
    }
    c.globalAlpha = 1;
  }

  trail(c, item) {
    const places = item.trail ?? [];
    c.strokeStyle = item.colour;
    c.lineWidth = 2.5;
    c.lineCap = "round";
    for (let i = 1; i < places.length; i += 1) {
      const [from, to] = [vector(places[i - 1]), vector(places[i])];
      if (from[0] * to[0] + from[1] * to[1] + from[2] * to[2] < 0.7) continue; // not a continuous movement
      const [a, b] = [this.at(from), this.at(to)];
      c.globalAlpha = (0.6 * (item.faint ?? 1) * i) / places.length;
      c.beginPath();
      c.moveTo(a[0], a[1]);
      c.lineTo(b[0], b[1]);
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  stalk(c, item, [x, y]) {
    c.strokeStyle = item.colour;
    c.globalAlpha = 0.55 * (item.faint ?? 1);
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(this.cx, this.cy);
    c.lineTo(x, y);
    c.stroke();
    c.globalAlpha = 1;
  }

  head(c) {
    const { cx, cy, R, inks, f } = this;
    const size = HEAD * R;
    c.fillStyle = inks.card;
    c.strokeStyle = inks.soft;
    c.lineWidth = 1.5;
    const part = (v, wide, tall) => {
      const [x, y] = this.at(v);
      c.beginPath();
      c.ellipse(x, y, wide, tall, 0, 0, 2 * Math.PI);
      c.fill();
      c.stroke();
    };
    const skull = () => {
      c.beginPath();
      c.ellipse(cx, cy, size, size * (1 + 0.12 * Math.abs(this.u[2])), 0, 0, 2 * Math.PI);
      c.fill();
      c.stroke();
    };
    const nose = () => {
      const tip = this.at([1.36 * HEAD, 0, -0.02]);
      const [a, b] = [this.at([0.9 * HEAD, 0.24 * HEAD, 0]), this.at([0.9 * HEAD, -0.24 * HEAD, 0])];
      const [top, low] = [this.at([0.95 * HEAD, 0, 0.3 * HEAD]), this.at([0.95 * HEAD, 0, -0.3 * HEAD])];
      c.beginPath();
      for (const [i, p] of [a, top, b, low].entries()) { c.moveTo(tip[0], tip[1]); c.lineTo(p[0], p[1]); const q = [top, b, low, a][i]; c.lineTo(q[0], q[1]); }
      c.fill();
      c.stroke();
    };
    const ear = (side) => {
      const depth = side * f[1];
      part([0, side * HEAD * 1.02, 0], size * (0.09 + 0.2 * Math.abs(f[1])), size * 0.3);
      return depth;
    };
    // Where the head faces; visible also when the nose is behind the head.
    const facing = () => {
      const [from, to, left, right] = [[HEAD, 0], [0.62, 0], [0.53, 0.05], [0.53, -0.05]].map(([x, y]) => this.at([x, y, 0]));
      c.beginPath();
      c.moveTo(from[0], from[1]);
      for (const p of [to, left, to, right]) c.lineTo(p[0], p[1]);
      c.stroke();
    };
    const parts = [[0, skull], [f[0] * 2 * HEAD, facing], [f[0] * HEAD, nose], [f[1] * HEAD, () => ear(1)], [-f[1] * HEAD, () => ear(-1)]];
    parts.sort((a, b) => b[0] - a[0]);
    for (const [, draw] of parts) draw();
  }

  // The direction is a dot, so that the region around it stays visible; the number is next to it.
  badge(c, item, [x, y, depth]) {
    const r = this.small ? 7 : item.chosen ? 13 : 11;
    c.globalAlpha = (item.faint ?? 1) * (depth > 0.02 ? 0.9 : 1);
    let [bx, by] = [x, y];
    if (!this.small && !this.drags) {
      const dx = x - this.cx, dy = y - this.cy, length = Math.hypot(dx, dy);
      const [ux, uy] = length > 1 ? [dx / length, dy / length] : [0, -1];
      [bx, by] = [x + 25 * ux, y + 25 * uy].map((v, i) => Math.max(r + 1, Math.min([this.width, this.height][i] - r - 1, v)));
      this.disc(c, x, y, 4.5, item.colour);
    }
    this.disc(c, bx, by, r, item.colour);
    c.fillStyle = item.on;
    c.font = `700 ${this.small ? 10 : 13}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(item.label, bx, by + 0.5);
    if (item.name && !this.small) this.label(c, item.name, bx, by, r);
    c.globalAlpha = 1;
  }

  // Further possible directions are small dots of the same colour.
  alternatives(c, item) {
    for (const place of item.alternatives ?? []) {
      const [x, y] = this.at(vector(place));
      this.disc(c, x, y, 3.5, item.colour);
    }
  }

  disc(c, x, y, r, colour) {
    c.beginPath();
    c.arc(x, y, r, 0, 2 * Math.PI);
    c.fillStyle = colour;
    c.fill();
    c.lineWidth = 2;
    c.strokeStyle = this.inks.card;
    c.stroke();
  }

  label(c, name, x, y, r) {
    c.font = "600 13px system-ui, sans-serif";
    const left = x < this.cx, wide = c.measureText(name).width;
    const at = x + (left ? -1 : 1) * (r + 5);
    c.textAlign = left ? "right" : "left";
    if (left ? at - wide < 4 : at + wide > this.width - 4) return; // the number is enough
    c.lineWidth = 3;
    c.strokeStyle = this.inks.card;
    c.strokeText(name, at, y);
    c.fillStyle = this.inks.ink;
    c.fillText(name, at, y);
  }

  truth(c, mark) {
    const [x, y] = this.at(vector(mark.direction));
    const r = this.small ? 10 : 9;
    for (const [width, colour] of [[6, this.inks.ink], [4.5, this.inks.card], [2.5, mark.colour ?? this.inks.truth]]) {
      c.beginPath();
      c.arc(x, y, r, 0, 2 * Math.PI);
      c.lineWidth = width;
      c.strokeStyle = colour;
      c.stroke();
    }
  }

  // --- mouse, touch and keys ---------------------------------------------------------------

  listen() {
    const canvas = this.canvas;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const [x, y] = this.pointer(event);
      const item = this.drags ? this.hit(x, y) : null;
      held = item ? { item, far: this.at(vector(item.direction))[2] > 0, out: false } : { x, y, yaw: this.yaw, pitch: this.pitch };
      if (item) this.drags.chosen?.(item);
      canvas.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return;
      const [x, y] = this.pointer(event);
      if (held.item) this.drag(held, x, y);
      else if (this.turns) this.turn(held.yaw + ((x - held.x) / this.R) * 60, held.pitch + ((y - held.y) / this.R) * 60);
    });
    const release = () => { if (held?.item) this.drags.dropped?.(held.item); held = null; };
    canvas.addEventListener("pointerup", (event) => {
      const [x, y] = this.pointer(event);
      if (this.picked && held && !held.item && Math.hypot(x - held.x, y - held.y) < 4) this.pick(x, y);
      release();
    });
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  pointer(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  hit(x, y) {
    const near = this.items.map((item) => [item, this.at(vector(item.direction))])
      .filter(([item, p]) => !item.fixed && Math.hypot(p[0] - x, p[1] - y) < 24)
      .sort((a, b) => a[1][2] - b[1][2]);
    return near.length ? near[0][0] : null;
  }

  // The direction of a click on the near side of the sphere.
  pick(x, y) {
    const dx = (x - this.cx) / this.R, dy = (this.cy - y) / this.R, length = Math.hypot(dx, dy);
    if (length > 1) return;
    const depth = -Math.sqrt(1 - length * length), { f, r, u } = this;
    this.picked(direction([0, 1, 2].map((i) => dx * r[i] + dy * u[i] + depth * f[i])));
  }

  // An item that is dragged across the rim of the sphere moves to its other side.
  drag(held, x, y) {
    let dx = (x - this.cx) / this.R, dy = (this.cy - y) / this.R;
    const length = Math.hypot(dx, dy);
    if (length > 1.06 && !held.out) { held.far = !held.far; held.out = true; }
    if (length < 0.98) held.out = false;
    if (length > 1) { dx /= length; dy /= length; }
    const depth = Math.sqrt(Math.max(0, 1 - dx * dx - dy * dy)) * (held.far ? 1 : -1);
    const { f, r, u } = this;
    held.item.direction = direction([0, 1, 2].map((i) => dx * r[i] + dy * u[i] + depth * f[i]));
    this.drags.moved?.(held.item);
    this.draw();
  }

  key(event) {
    const moves = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
    if (event.key === "Home" && this.turns) this.turn(this.home.yaw, this.home.pitch);
    else if (moves[event.key] && this.turns) this.turn(this.yaw + moves[event.key][0], this.pitch + moves[event.key][1]);
    else return;
    event.preventDefault();
  }
}
