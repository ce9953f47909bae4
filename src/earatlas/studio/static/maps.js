// Flat map of the posterior of each source over azimuth and elevation, left on the left.

import { el, fitCanvas, formatDirection, onAppearanceChange, sourceCaption, themeColours } from "./dom.js";
import { pictureMenu } from "./pictures.js";

const LEFT = 46, BOTTOM = 20; // CSS pixels for the ticks
const STEPS = [0.5, 1, 2, 5, 10, 15, 30, 45, 90]; // degrees between ticks
const WHOLE = { azimuths: [180, -180], elevations: [-90, 90] };

export class PosteriorMaps {
  // `sources` and `truth` are those of a view.
  constructor(view) {
    Object.assign(this, { sources: view.sources.filter((source) => source.map), truth: view.truth ?? [], chosen: null });
    const places = this.sources.map(sourceCaption).join("; ");
    this.canvas = el("canvas", { class: "map", role: "img", "aria-label": `Probability of each direction, azimuth from left to right and elevation upwards. ${places}` });
    this.readOut = el("span", { class: "note" }, " ");
    this.buttons = [null, ...this.sources.map(({ number }) => number)].map((number) =>
      el("button", { class: "toggle", "aria-pressed": String(number === null), "aria-label": number === null ? "Map of all directions" : `Map of source ${number}`, onclick: () => this.choose(number) }, number === null ? "All" : String(number)));
    this.images = new Map(this.sources.flatMap(({ map }) => [map, map.close_up]).filter(Boolean).map((map) => {
      const image = new Image();
      image.onload = () => this.draw();
      image.src = map.image;
      return [map, image];
    }));
    this.menu = pictureMenu(() => [{
      name: "Map of directions", title: `${view.name}: probability of each direction`, parts: [{ canvas: this.canvas }], draw: () => this.draw(),
      legend: [...this.shown().map((source) => ({ colour: source.colour, name: sourceCaption(source) })), { colour: "none", name: "strong colour: 50 % region, pale: 90 % region" }],
    }]);
    this.card = el("section", { class: "card", "aria-label": "Map of directions" }, el("h2", {}, "Probability of each direction"), this.canvas,
      el("p", { class: "fields" }, el("span", { class: "segments", role: "group", "aria-label": "Shown on the map" }, this.buttons), this.readOut),
      el("ul", { class: "key" }, el("li", {}, "strong colour: 50 % region, pale: 90 % region"), el("li", {}, "1, 2, …: close-up of one source"), el("li", {}, "small dots: further possible directions"), this.truth.length ? el("li", { class: "true" }, "ring: true direction") : null), this.menu);
    this.canvas.addEventListener("pointermove", (event) => this.read(event));
    this.canvas.addEventListener("pointerleave", () => { this.readOut.textContent = " "; });
    this.stop = onAppearanceChange(this.canvas, () => this.draw());
  }

  close() { this.stop(); }

  shown() { return this.sources.filter(({ number }) => this.chosen === null || number === this.chosen); }

  choose(number) {
    this.chosen = number;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String((i === 0 ? null : this.sources[i - 1].number) === number)));
    this.draw();
  }

  // The range of the map: all directions, or the close-up of the chosen source.
  get range() { return (this.chosen !== null && this.shown()[0].map.close_up) || WHOLE; }

  // A close-up may extend beyond 180°: azimuths are those nearest to its centre.
  unwrapped(azimuth) {
    const [left, right] = this.range.azimuths;
    return azimuth + 360 * Math.round(((left + right) / 2 - azimuth) / 360);
  }

  x(azimuth) {
    const [left, right] = this.range.azimuths;
    return LEFT + ((left - azimuth) / (left - right)) * (this.width - LEFT);
  }

  y(elevation) {
    const [low, high] = this.range.elevations;
    return ((high - elevation) / (high - low)) * (this.height - BOTTOM);
  }

  read(event) {
    const box = this.canvas.getBoundingClientRect();
    const [left, right] = this.range.azimuths, [low, high] = this.range.elevations;
    const across = (event.clientX - box.left - LEFT) / (box.width - LEFT), down = (event.clientY - box.top) / (box.height - BOTTOM);
    const azimuth = left + across * (right - left);
    const inside = across >= 0 && across <= 1 && down >= 0 && down <= 1;
    this.readOut.textContent = inside ? formatDirection([azimuth - 360 * Math.round(azimuth / 360), high + down * (low - high)]) : " ";
  }

  draw() {
    const { context: c, width, height } = fitCanvas(this.canvas);
    if (!width) return;
    Object.assign(this, { width, height });
    const inks = themeColours();
    c.clearRect(0, 0, width, height);
    c.fillStyle = inks.plot;
    c.fillRect(LEFT, 0, width - LEFT, height - BOTTOM);
    this.ticks(c, inks);
    c.imageSmoothingEnabled = true;
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, width - LEFT, height - BOTTOM);
    c.clip();
    for (const source of this.shown()) {
      const map = this.range === WHOLE ? source.map : this.range, image = this.images.get(map);
      const [left, right] = map.azimuths.map((a) => this.x(a)), [low, high] = map.elevations.map((e) => this.y(e));
      if (image.complete && image.naturalWidth) c.drawImage(image, left, high, right - left, low - high);
    }
    for (const mark of this.truth) this.ring(c, mark, inks);
    for (const source of this.shown()) if (source.known) this.mark(c, source, inks);
    c.restore();
    c.strokeStyle = inks.line;
    c.lineWidth = 1;
    c.strokeRect(LEFT + 0.5, 0.5, width - LEFT - 1, height - BOTTOM - 1);
  }

  ticks(c, inks) {
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = inks.soft;
    c.strokeStyle = inks.line;
    c.lineWidth = 1;
    const [left, right] = this.range.azimuths, [low, high] = this.range.elevations;
    const azimuths = ticks(right, left, 6), elevations = ticks(low, high, 6);
    c.beginPath();
    for (const a of azimuths) { c.moveTo(this.x(a), 0); c.lineTo(this.x(a), this.height - BOTTOM); }
    for (const e of elevations) { c.moveTo(LEFT, this.y(e)); c.lineTo(this.width, this.y(e)); }
    c.stroke();
    c.textBaseline = "top";
    for (const a of azimuths) {
      const x = this.x(a);
      c.textAlign = x < LEFT + 20 ? "left" : x > this.width - 24 ? "right" : "center";
      c.fillText(azimuthLabel(a - 360 * Math.round(a / 360)), x, this.height - BOTTOM + 5);
    }
    c.textAlign = "right";
    for (const e of elevations) {
      const y = this.y(e);
      c.textBaseline = y < 8 ? "top" : y > this.height - BOTTOM - 8 ? "bottom" : "middle";
      c.fillText(`${e}°`.replace("-", "−"), LEFT - 5, y);
    }
  }

  ring(c, { direction: [azimuth, elevation], colour: own }, inks) {
    for (const [width, colour] of [[6, inks.ink], [4.5, inks.card], [2.5, own ?? inks.truth]]) {
      c.beginPath();
      c.arc(this.x(this.unwrapped(azimuth)), this.y(elevation), 11, 0, 2 * Math.PI);
      c.lineWidth = width;
      c.strokeStyle = colour;
      c.stroke();
    }
  }

  // The direction is a dot, so that the region around it stays visible; its number is next to it.
  mark(c, source, inks) {
    const dot = (place, r, dx = 0, dy = 0) => {
      c.beginPath();
      c.arc(this.x(this.unwrapped(place[0])) + dx, this.y(place[1]) + dy, r, 0, 2 * Math.PI);
      c.fillStyle = source.colour;
      c.fill();
      c.lineWidth = 1.5;
      c.strokeStyle = inks.card;
      c.stroke();
    };
    for (const place of source.alternative_directions ?? []) dot(place, 4);
    dot(source.direction, 4.5);
    const up = this.y(source.direction[1]) > 34 ? -20 : 20;
    dot(source.direction, 9, 16, up);
    c.fillStyle = source.text_colour;
    c.font = "700 11px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(String(source.number), this.x(this.unwrapped(source.direction[0])) + 16, this.y(source.direction[1]) + up + 0.5);
  }
}

// Multiples of the smallest step that gives at most `count` ticks.
function ticks(low, high, count) {
  const step = STEPS.find((one) => (high - low) / one <= count) ?? 90;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => step * (first + i));
}

function azimuthLabel(a) {
  const size = `${Math.abs(a)}°`;
  return a === 0 ? "0° front" : Math.abs(a) === 180 ? size : `${size} ${a > 0 ? "left" : "right"}`;
}
