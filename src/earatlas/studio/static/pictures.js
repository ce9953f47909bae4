// Save pictures of the page as PNG or SVG, with their titles, scales and the names of the sources.

import { announce, el, icon, themeColours } from "./dom.js";
import { recordSvg } from "./svg.js";

const MARGIN = 12, TITLE = 24, LEGEND = 24; // CSS pixels
const SCALE = 2; // pixels of a PNG file per CSS pixel
const FONT = "system-ui, sans-serif";
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// A picture: {name, parts: [{title, canvas}], draw(), legend: [{colour, name}]}. Its parts are stacked.
export function pictureSvg({ parts, draw, legend = [], title = "" }) {
  const inks = themeColours();
  const canvases = parts.map(({ canvas }) => canvas);
  const contents = recordSvg(canvases, draw);
  draw(); // the page keeps its own pixels
  const width = Math.max(...canvases.map((canvas) => canvas.clientWidth), Math.min(9 * title.length, 900)) + 2 * MARGIN;
  const pieces = [];
  let y = MARGIN;
  const line = (text, size, weight) => {
    pieces.push(`<text x="${MARGIN}" y="${y + 15}" font-family="${FONT}" font-size="${size}" font-weight="${weight}" fill="${inks.ink}">${escape(text)}</text>`);
    y += TITLE;
  };
  if (title) line(title, 15, 700);
  parts.forEach(({ title: name, canvas }, i) => {
    if (name) line(name, 13, 600);
    pieces.push(`<svg x="${MARGIN}" y="${y}" width="${canvas.clientWidth}" height="${canvas.clientHeight}" overflow="visible">${contents[i]}</svg>`);
    y += canvas.clientHeight + 6;
  });
  let x = MARGIN;
  for (const { colour, name, stops } of legend) {
    const wide = stops ? 90 : 14;
    if (x + wide + 7 * name.length + 12 > width && x > MARGIN) { x = MARGIN; y += LEGEND; }
    if (stops) {
      pieces.push(`<linearGradient id="scale${pieces.length}">${stops.map((stop, i) => `<stop offset="${i / (stops.length - 1)}" stop-color="${stop === "transparent" ? inks.plot : stop}"/>`).join("")}</linearGradient>`);
      pieces.push(`<rect x="${x}" y="${y + 6}" width="${wide}" height="10" fill="url(#scale${pieces.length - 1})" stroke="${inks.line}"/>`);
    } else pieces.push(`<rect x="${x}" y="${y + 4}" width="${wide}" height="14" rx="3" fill="${colour}"/>`);
    pieces.push(`<text x="${x + wide + 6}" y="${y + 15}" font-family="${FONT}" font-size="12" fill="${inks.ink}">${escape(name)}</text>`);
    x += wide + 7 * name.length + 26;
  }
  const height = y + (legend.length ? LEGEND : 0) + MARGIN;
  return { width, height, text: `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"><rect width="100%" height="100%" fill="${inks.card}"/>${pieces.join("")}</svg>` };
}

export async function picturePng(picture) {
  const { width, height, text } = pictureSvg(picture);
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    await image.decode();
    const canvas = el("canvas", { width: Math.round(SCALE * width), height: Math.round(SCALE * height) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => { canvas.toBlob(done, "image/png"); });
  } finally { URL.revokeObjectURL(image.src); }
}

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function saveText(text, name, type) {
  download(new Blob([text], { type }), name);
  announce(`${name} saved.`);
}

async function save(picture, kind) {
  const blob = kind === "png" ? await picturePng(picture) : new Blob([pictureSvg(picture).text], { type: "image/svg+xml" });
  download(blob, `${picture.name.toLowerCase().replace(/[^a-z0-9]+/g, "_")}.${kind}`);
  announce(`${picture.name} saved as ${kind.toUpperCase()}.`);
}

// A menu that saves pictures; `pictures()` is called when it is used, because a page may change them.
export function pictureMenu(pictures) {
  const list = el("ul", {});
  const menu = el("details", { class: "save", ontoggle: () => {
    if (!menu.open) return;
    list.replaceChildren(...pictures().map((picture) => el("li", {}, el("span", {}, picture.name), ["png", "svg"].map((kind) =>
      el("button", { class: "toggle", "aria-label": `Save ${picture.name} as ${kind.toUpperCase()}`, onclick: () => save(picture, kind) }, kind.toUpperCase())))));
  } }, el("summary", {}, icon("down"), "Save pictures"), list);
  return menu;
}
