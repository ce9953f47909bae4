// Helpers for elements and canvases. Text is never set as HTML, so that names cannot become markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
    else if (key === "value" || key === "checked" || key === "disabled" || key === "selected") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const N_COLOURS = 7; // of `earatlas.plotting.palette`
const PATHS = {
  play: "M7 4.5v15l13-7.5z",
  pause: "M6 5h4.5v14H6zM13.5 5H18v14h-4.5z",
  stop: "M6 6h12v12H6z",
  record: "M12 5a7 7 0 1 0 0 14 7 7 0 0 0 0-14z",
  file: "M6 3h8l5 5v13H6zM13 4v5h5",
  again: "M12 5a7 7 0 1 1-6.6 4.7l1.9.6A5 5 0 1 0 12 7v3L7.5 6 12 2z",
  loop: "M7 7h9V4l5 4.5-5 4.5v-3H9v4H7zM17 17H8v3l-5-4.5L8 11v3h7v-4h2z",
  edit: "M4 17.2V20h2.8L17 9.8 14.2 7zM15.3 5.9l2.8 2.8 1.6-1.6a1 1 0 0 0 0-1.4l-1.4-1.4a1 1 0 0 0-1.4 0z",
  down: "M11 4h2v8h3.5L12 17l-4.5-5H11zM5 19h14v2H5z",
};

export function icon(name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(namespace, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function setContent(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// A sentence as nodes, with `commands` between backticks as code.
export const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

// Announce a text to screen readers without moving the focus.
export function announce(text) {
  document.getElementById("announcement").textContent = text;
}

// Black or white, whichever has more contrast on a colour (WCAG 2).
export function textColour(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#10151a" : "#ffffff";
}

// The colour of source `number`, counted from 1, and that of text on it.
export function sourceColour(number) {
  const style = getComputedStyle(document.documentElement);
  const colour = style.getPropertyValue(`--source${((number - 1) % N_COLOURS) + 1}`).trim();
  return { colour, on: textColour(colour) };
}

// Number, name if it has one, and direction of a source, for legends.
export function sourceCaption({ number, label, place }) { return `${number}${label ? ` ${label}` : ""}: ${place}`; }

export function badge({ number, colour, on }) {
  return el("span", { class: "badge", style: { "--colour": colour, "--on": on }, "aria-hidden": "true" }, String(number));
}

export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "card", "ink", "soft", "line", "plot", "accent", "truth"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Call `draw` when the colour scheme or the size of a canvas changes; returns a function that stops.
export function onAppearanceChange(canvas, draw) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", draw);
  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  return () => { media.removeEventListener("change", draw); observer.disconnect(); };
}

// Fit a canvas to its CSS size at the resolution of the screen; drawing is in CSS pixels. While a picture
// is saved as SVG, the context records what is drawn (see svg.js).
export function fitCanvas(canvas) {
  if (canvas.recorder) return { context: canvas.recorder, width: canvas.recorder.width, height: canvas.recorder.height };
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

// A slider for azimuth (axis 0, left on the left) or elevation (axis 1).
export function angleSlider(axis, name, onChange) {
  const limit = axis === 0 ? 180 : 90;
  const slider = el("input", { type: "range", min: -limit, max: limit, step: 1, "aria-label": name, oninput: () => onChange((axis === 0 ? -1 : 1) * Number(slider.value)) });
  return slider;
}

export function setSliders(sliders, [azimuth, elevation]) {
  [-azimuth, elevation].forEach((value, i) => { sliders[i].value = Math.round(value); sliders[i].setAttribute("aria-valuetext", formatDirection([azimuth, elevation])); });
}

export const degrees = (value) => `${Math.round(value)}°`.replace("-", "−");

export function formatDirection([azimuth, elevation]) {
  const a = Math.round(azimuth), e = Math.round(elevation);
  if (Math.abs(e) >= 85) return e > 0 ? "straight above" : "straight below";
  const size = Math.abs(a);
  const horizontal = size === 0 ? "straight ahead" : size === 180 ? "straight behind" : `${size}° ${a > 0 ? "left" : "right"}`;
  const height = e === 0 ? "ear height" : `${Math.abs(e)}° ${e > 0 ? "up" : "down"}`;
  const zone = size === 0 || size === 180 ? "" : size <= 75 ? ", front" : size < 105 ? ", side" : ", behind";
  return `${horizontal}, ${height}${zone}`;
}
