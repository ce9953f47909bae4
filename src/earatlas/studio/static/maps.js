// Flat map of the posterior of each source over azimuth and elevation, left on the left.

import { degrees, el, fitCanvas, formatDirection, onAppearanceChange, themeColours } from "./dom.js";
import { pictureMenu } from "./pictures.js";

const LEFT = 46, BOTTOM = 20; // CSS pixels for the ticks
const AZIMUTHS = [180, 90, 0, -90, -180], ELEVATIONS = [-90, -45, 0, 45, 90];

export class PosteriorMaps {
  // `sources` and `truth` are those of a view.
  constructor(view) {
    Object.assign(this, { sources: view.sources.filter((source) => source.map), truth: view.truth ?? [], chosen: null });
    const places = this.sources.map((source) => `${source.number}: ${source.place}`).join("; ");
    this.canvas = el("canvas", { class: "map", role: "img", "aria-label": `Probability of each direction, azimuth from left to right and elevation upwards. ${places}` });
    this.readOut = el("span", { class: "note" }, " ");
    this.buttons = [null, ...this.sources.map(({ number }) => number)].map((number) =>
      el("button", { class: "toggle", "aria-pressed": String(number === null), "aria-label": number === null ? "Map of all sources" : `Map of source ${number}`, onclick: () => this.choose(number) }, number === null ? "All" : String(number)));
    this.images = new Map(this.sources.map((source) => {
      const image = new Image();
      image.onload = () => this.draw();
      image.src = source.map.image;
      return [source.number, image];
    }));
    this.menu = pictureMenu(() => [{
      name: "Map of directions", title: `${view.name}: probability of each direction`, parts: [{ canvas: this.canvas }], draw: () => this.draw(),
      legend: [...this.shown().map(({ colour, number, place }) => ({ colour, name: `${number}: ${place}` })), { colour: "none", name: "dark: 50 % region, light: 90 % region" }],
    }]);
    this.card = el("section", { class: "card", "aria-label": "Map of directions" }, el("h2", {}, "Probability of each direction"), this.canvas,
      el("p", { class: "fields" }, el("span", { class: "segments", role: "group", "aria-label": "Sources on the map" }, this.buttons), this.readOut),
      el("ul", { class: "key" }, el("li", {}, "dark: 50 % region, light: 90 % region"), el("li", {}, "small dots: further possible directions"), this.truth.length ? el("li", { class: "true" }, "true direction") : null), this.menu);
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

  x(azimuth) { return LEFT + ((180 - azimuth) / 360) * (this.width - LEFT); }
  y(elevation) { return ((90 - elevation) / 180) * (this.height - BOTTOM); }

  read(event) {
    const box = this.canvas.getBoundingClientRect();
    const azimuth = 180 - (360 * (event.clientX - box.left - LEFT)) / (box.width - LEFT), elevation = 90 - (180 * (event.clientY - box.top)) / (box.height - BOTTOM);
    this.readOut.textContent = Math.abs(azimuth) <= 180 && Math.abs(elevation) <= 90 ? formatDirection([azimuth, elevation]) : " ";
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
    for (const { map, number } of this.shown()) {
      const image = this.images.get(number);
      const [left, right] = map.azimuths.map((a) => this.x(a)), [low, high] = map.elevations.map((e) => this.y(e));
      if (image.complete && image.naturalWidth) c.drawImage(image, left, high, right - left, low - high);
    }
    for (const { direction } of this.truth) this.ring(c, direction, inks);
    for (const source of this.shown()) if (source.known) this.mark(c, source, inks);
    c.strokeStyle = inks.line;
    c.lineWidth = 1;
    c.strokeRect(LEFT + 0.5, 0.5, width - LEFT - 1, height - BOTTOM - 1);
  }

  ticks(c, inks) {
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = inks.soft;
    c.strokeStyle = inks.line;
    c.lineWidth = 1;
    c.beginPath();
    for (const a of AZIMUTHS) { c.moveTo(this.x(a), 0); c.lineTo(this.x(a), this.height - BOTTOM); }
    for (const e of ELEVATIONS) { c.moveTo(LEFT, this.y(e)); c.lineTo(this.width, this.y(e)); }
    c.stroke();
    c.textBaseline = "top";
    for (const a of AZIMUTHS) {
      c.textAlign = a === 180 ? "left" : a === -180 ? "right" : "center";
      c.fillText(a === 0 ? "0° front" : Math.abs(a) === 180 ? "180°" : `${Math.abs(a)}° ${a > 0 ? "left" : "right"}`, this.x(a), this.height - BOTTOM + 5);
    }
    c.textAlign = "right";
    for (const e of ELEVATIONS) {
      c.textBaseline = e === 90 ? "top" : e === -90 ? "bottom" : "middle";
      c.fillText(degrees(e), LEFT - 5, this.y(e));
    }
  }

  ring(c, [azimuth, elevation], inks) {
    for (const [width, colour] of [[5, inks.card], [2.25, inks.truth]]) {
      c.beginPath();
      c.arc(this.x(azimuth), this.y(elevation), 12, 0, 2 * Math.PI);
      c.lineWidth = width;
      c.strokeStyle = colour;
      c.stroke();
    }
  }

  mark(c, source, inks) {
    const dot = ([azimuth, elevation], r) => {
      c.beginPath();
      c.arc(this.x(azimuth), this.y(elevation), r, 0, 2 * Math.PI);
      c.fillStyle = source.colour;
      c.fill();
      c.lineWidth = 1.5;
      c.strokeStyle = inks.card;
      c.stroke();
    };
    for (const place of source.alternative_directions ?? []) dot(place, 4);
    dot(source.direction, 8);
    c.fillStyle = source.text_colour;
    c.font = "700 11px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(String(source.number), this.x(source.direction[0]), this.y(source.direction[1]) + 0.5);
  }
}
