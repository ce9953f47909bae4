// A drawing context that records SVG instead of pixels.
//
// It has the part of CanvasRenderingContext2D that the pictures of the studio use, so that a picture is
// saved as SVG by the same code that draws it on the page (see `recordSvg` and `fitCanvas`).

const STATE = ["fillStyle", "strokeStyle", "lineWidth", "lineCap", "lineJoin", "globalAlpha", "font", "textAlign", "textBaseline"];
const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" };
const BASELINES = { top: "0.8em", hanging: "0.8em", middle: "0.35em", alphabetic: "0", bottom: "-0.2em", ideographic: "0" };
const round = (value) => Math.round(100 * value) / 100;
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

let number = 0; // of clip paths and gradients, unique in a page

export class SvgContext {
  constructor(width, height) {
    Object.assign(this, { width, height, fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, lineCap: "butt", lineJoin: "miter", globalAlpha: 1, font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic" });
    this.parts = [];
    this.definitions = [];
    this.stack = [];
    this.dash = [];
    this.groups = 0; // open groups of clip paths
    this.path = "";
    this.ruler = document.createElement("canvas").getContext("2d");
  }

  save() { this.stack.push({ ...Object.fromEntries(STATE.map((name) => [name, this[name]])), dash: this.dash, groups: this.groups }); }

  restore() {
    const state = this.stack.pop();
    if (!state) return;
    while (this.groups > state.groups) { this.parts.push("</g>"); this.groups -= 1; }
    Object.assign(this, state);
  }

  setTransform() {} // pictures are drawn in CSS pixels
  clearRect() {} // a recording starts empty
  setLineDash(dash) { this.dash = dash; }
  getLineDash() { return this.dash; }

  // --- paths -----------------------------------------------------------------------------------

  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${round(x)} ${round(y)}`; }
  lineTo(x, y) { this.path += `${this.path ? "L" : "M"}${round(x)} ${round(y)}`; }
  quadraticCurveTo(a, b, x, y) { this.path += `Q${round(a)} ${round(b)} ${round(x)} ${round(y)}`; }
  bezierCurveTo(a, b, c, d, x, y) { this.path += `C${[a, b, c, d, x, y].map(round).join(" ")}`; }
  closePath() { this.path += "Z"; }
  rect(x, y, w, h) { this.path += `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}Z`; }
  roundRect(x, y, w, h) { this.rect(x, y, w, h); }
  arc(x, y, r, from, to, back = false) { this.ellipse(x, y, r, r, 0, from, to, back); }

  ellipse(x, y, rx, ry, turn, from, to, back = false) {
    const at = (angle) => {
      const a = rx * Math.cos(angle), b = ry * Math.sin(angle);
      return [x + a * Math.cos(turn) - b * Math.sin(turn), y + a * Math.sin(turn) + b * Math.cos(turn)].map(round);
    };
    const span = back ? Math.max(to - from, -2 * Math.PI) : Math.min(to - from, 2 * Math.PI);
    const middle = from + span / 2; // a full turn needs two arcs
    this.path += `${this.path ? "L" : "M"}${at(from).join(" ")}`;
    for (const end of [middle, from + span]) this.path += `A${round(rx)} ${round(ry)} ${round((180 * turn) / Math.PI)} 0 ${span > 0 ? 1 : 0} ${at(end).join(" ")}`;
  }

  clip() {
    const id = `clip${(number += 1)}`;
    this.definitions.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    this.groups += 1;
  }

  fill() { this.parts.push(`<path d="${this.path}" ${this.paint("fill", this.fillStyle)}/>`); }
  stroke() { this.parts.push(`<path d="${this.path}" fill="none" ${this.outline()}/>`); }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}" ${this.paint("fill", this.fillStyle)}/>`); }
  strokeRect(x, y, w, h) { this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}" fill="none" ${this.outline()}/>`); }

  // --- colours and text ------------------------------------------------------------------------

  paint(kind, style) {
    const value = style instanceof Gradient ? `url(#${style.define(this.definitions)})` : escape(style);
    return `${kind}="${value}"${this.globalAlpha < 1 ? ` ${kind}-opacity="${round(this.globalAlpha)}"` : ""}`;
  }

  outline() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    return `${this.paint("stroke", this.strokeStyle)} stroke-width="${round(this.lineWidth)}" stroke-linecap="${this.lineCap}" stroke-linejoin="${this.lineJoin}"${dash}`;
  }

  text(text, x, y, look) {
    const [, weight, size, family] = /^(?:(\d+|bold) )?([\d.]+)px (.*)$/.exec(this.font) ?? [null, null, 10, "sans-serif"];
    this.parts.push(`<text x="${round(x)}" y="${round(y)}" dy="${BASELINES[this.textBaseline]}" text-anchor="${ANCHORS[this.textAlign]}" font-size="${size}" font-family="${escape(family)}"${weight ? ` font-weight="${weight}"` : ""} ${look}>${escape(text)}</text>`);
  }

  fillText(text, x, y) { this.text(text, x, y, this.paint("fill", this.fillStyle)); }
  strokeText(text, x, y) { this.text(text, x, y, `fill="none" ${this.outline()}`); }

  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  createRadialGradient(x0, y0, r0, x1, y1, r1) { return new Gradient("radialGradient", { fx: x0, fy: y0, fr: r0, cx: x1, cy: y1, r: r1 }); }
  createLinearGradient(x1, y1, x2, y2) { return new Gradient("linearGradient", { x1, y1, x2, y2 }); }

  drawImage(image, x, y, w = image.width, h = image.height) {
    const href = image.src ?? image.toDataURL();
    const opacity = this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha)}"` : "";
    this.parts.push(`<image href="${href}" x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}" preserveAspectRatio="none"${opacity}/>`);
  }

  // Everything that was drawn, as the content of an <svg> element.
  content() {
    return `<defs>${this.definitions.join("")}</defs>${this.parts.join("")}${"</g>".repeat(this.groups)}`;
  }
}

class Gradient {
  constructor(kind, place) { Object.assign(this, { kind, place, stops: [] }); }

  addColorStop(at, colour) { this.stops.push(`<stop offset="${at}" stop-color="${escape(colour)}"/>`); }

  define(definitions) {
    if (!this.id) {
      this.id = `gradient${(number += 1)}`;
      const place = Object.entries(this.place).map(([name, value]) => `${name}="${round(value)}"`).join(" ");
      definitions.push(`<${this.kind} id="${this.id}" gradientUnits="userSpaceOnUse" ${place}>${this.stops.join("")}</${this.kind}>`);
    }
    return this.id;
  }
}

// Return what `draw` draws on canvases as the content of SVG elements: `fitCanvas` gives it recorders.
export function recordSvg(canvases, draw) {
  for (const canvas of canvases) canvas.recorder = new SvgContext(canvas.clientWidth, canvas.clientHeight);
  try { draw(); } finally {
    for (const canvas of canvases) { canvas.recorded = canvas.recorder; delete canvas.recorder; }
  }
  return canvases.map((canvas) => canvas.recorded.content());
}
