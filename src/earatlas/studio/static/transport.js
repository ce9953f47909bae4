// Controls of playback, which stay at the bottom of the window, and of zoom and selection.

import { el, icon, setContent } from "./dom.js";

const VOLUME = "earatlas-volume"; // kept in this tab

export class Transport {
  constructor(result) {
    this.result = result;
    const { player, view } = result;
    player.volume = Number(sessionStorage.getItem(VOLUME) ?? 1);
    this.button = el("button", { class: "round", "aria-label": "Play", disabled: true, onclick: () => player.toggle() }, icon("play"));
    this.clock = el("span", { class: "clock" }, clock(0, view.seconds));
    this.ab = [["Mixture", true], ["Separated", false]].map(([name, mixed]) =>
      el("button", { class: "toggle", disabled: Boolean(view.preliminary), "aria-pressed": String(Boolean(view.preliminary) === mixed), onclick: () => player.select({ mixed }) }, name));
    const volume = el("input", { type: "range", min: 0, max: 1, step: 0.05, value: player.volume, oninput: () => { player.setVolume(Number(volume.value)); sessionStorage.setItem(VOLUME, volume.value); } });
    this.bar = el("section", { class: "card transport", "aria-label": "Playback" }, this.button, this.clock,
      el("div", { class: "segments", role: "group", "aria-label": "Mixture or separated" }, this.ab),
      el("label", { class: "volume" }, "Volume ", volume),
      el("p", { class: "note hint" }, "Space: play · ← →: seek · A: mixture · 1 to 6: solo · 0: all · L: loop · + −: zoom"));
  }

  update() {
    const { playing, mixed } = this.result.player;
    setContent(this.button, icon(playing ? "pause" : "play"));
    this.button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.ab.forEach((button, i) => button.setAttribute("aria-pressed", String((i === 0) === (mixed || Boolean(this.result.view.preliminary)))));
  }

  setClock(t) { this.clock.textContent = clock(t, this.result.seconds); }
}

function clock(t, whole) { return `${t.toFixed(1)} of ${whole.toFixed(1)} s`; }

// Zoom, the ends of the selection as numbers, loop, and the analysis of the selection.
export class Toolbar {
  constructor(result) {
    this.result = result;
    this.looping = false;
    const { view } = result, line = () => result.time.timeline;
    const button = (label, name, action, options = {}) => el("button", { class: "toggle", "aria-label": name, onclick: action, ...options }, label);
    const number = (name) => el("input", { type: "number", min: 0, max: view.seconds, step: 0.01, "aria-label": name, onchange: () => this.typed() });
    this.from = number("Selection from, in seconds");
    this.to = number("Selection to, in seconds");
    this.all = button("All", "Show all", () => line().showAll());
    this.loop = el("button", { class: "toggle", "aria-pressed": "false", title: "Repeat the selection, or all (key L)", onclick: () => this.toggleLoop() }, icon("loop"), "Loop");
    this.fit = button("Zoom to it", "Zoom to the selection", () => line().show(line().selection.start, line().selection.end));
    this.analyse = el("button", { class: "toggle", onclick: () => result.analyseSelection() }, icon("again"), "Analyse selection");
    this.clear = button("Clear", "Clear the selection", () => line().clear());
    this.overview = el("input", { type: "range", class: "overview", min: 0, max: 1, step: "any", "aria-label": "Visible part", oninput: () => line().show(Number(this.overview.value), Number(this.overview.value) + line().span) });
    this.bar = el("div", { class: "toolbar", role: "group", "aria-label": "Zoom and selection" },
      el("span", { class: "segments" }, button("−", "Zoom out", () => line().zoom(0.5, result.player.position())), button("+", "Zoom in", () => line().zoom(2, result.player.position())), this.all),
      el("span", { class: "range" }, "Selection ", this.from, " to ", this.to, " s"), this.loop, this.fit, this.analyse, this.clear);
    queueMicrotask(() => this.update());
  }

  typed() {
    const { timeline } = this.result.time;
    const [from, to] = [this.from.value, this.to.value].map(Number);
    if (this.from.value !== "" && this.to.value !== "") timeline.select(from, to);
  }

  toggleLoop() { this.looping = !this.looping; this.update(); }

  update() {
    const { time, player, view, settings } = this.result;
    const { timeline } = time, { selection } = timeline;
    const typing = document.activeElement === this.from || document.activeElement === this.to;
    if (selection || !typing) [this.from.value, this.to.value] = selection ? [selection.start.toFixed(2), selection.end.toFixed(2)] : ["", ""];
    for (const control of [this.fit, this.clear]) control.disabled = !selection;
    this.analyse.disabled = !selection || Boolean(view.preliminary);
    this.analyse.title = settings.hasReport ? "Separate only this part, as another recording" : "";
    this.all.disabled = !timeline.zoomed;
    this.overview.hidden = !timeline.zoomed;
    this.overview.max = view.seconds - timeline.span;
    this.overview.value = timeline.start;
    this.overview.setAttribute("aria-valuetext", `${timeline.start.toFixed(2)} to ${timeline.end.toFixed(2)} s`);
    this.loop.setAttribute("aria-pressed", String(this.looping));
    const loop = this.looping ? selection ?? { start: 0, end: view.seconds } : null;
    if (JSON.stringify(loop) !== JSON.stringify(player.loop)) player.setLoop(loop);
  }
}
