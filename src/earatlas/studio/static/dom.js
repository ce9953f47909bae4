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

const PATHS = {
  play: "M7 4.5v15l13-7.5z",
  pause: "M6 5h4.5v14H6zM13.5 5H18v14h-4.5z",
  stop: "M6 6h12v12H6z",
  record: "M12 5a7 7 0 1 0 0 14 7 7 0 0 0 0-14z",
  file: "M6 3h8l5 5v13H6zM13 4v5h5",
  again: "M12 5a7 7 0 1 1-6.6 4.7l1.9.6A5 5 0 1 0 12 7v3L7.5 6 12 2z",
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

// Announce a text to screen readers without moving the focus.
export function announce(text) {
  document.getElementById("announcement").textContent = text;
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
