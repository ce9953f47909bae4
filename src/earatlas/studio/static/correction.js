// Correction by hand: move, merge, split, add, rename and remove sources, then separate again at these
// directions.

import { angleSlider, announce, badge, el, formatDirection, icon, setContent, setSliders, sourceColour } from "./dom.js";

const MAX_SOURCES = 6;
const SPLIT_DEGREES = 15; // to each side of a source that is split

export class Correction {
  constructor(result) {
    this.result = result;
    this.sources = result.view.sources.map((source, m) => ({
      m, number: source.number, name: source.label, direction: [...result.items[m].direction], share: source.share,
    }));
    this.show();
    announce("Drag the sources on the sphere, or use the sliders.");
    result.list.querySelector("input")?.focus();
  }

  get free() { return [...Array(99).keys()].map((i) => i + 1).find((n) => !this.sources.some((one) => one.number === n)); }

  show() {
    const { result, sources } = this;
    this.items = sources.map((one) => ({ ...sourceColour(one.number), direction: one.direction, label: String(one.number), name: one.name, one }));
    result.setItems(this.items, { moved: (item) => this.moved(item), chosen: (item) => { for (const other of this.items) other.chosen = other === item; } });
    this.outputs = [];
    setContent(result.list, el("p", { class: "note" }, "Drag a source on the sphere, or move its sliders. What is removed goes to the other sources."),
      sources.map((one, i) => this.card(one, i)),
      el("p", { class: "choices" },
        el("button", { class: "main", onclick: () => this.again() }, icon("again"), "Separate again"),
        sources.length < MAX_SOURCES ? el("button", { onclick: () => this.change([...sources, this.fresh([0, 0])], "Source added") }, "Add a source") : null,
        el("button", { onclick: () => { result.showSources(); result.correct.focus(); } }, "Cancel")));
  }

  fresh(direction) { return { m: null, number: this.free, name: "", direction, share: 0 }; }

  card(one, i) {
    const item = this.items[i], name = one.name || `source ${one.number}`;
    const slide = (axis, word) => angleSlider(axis, `${word} of ${name}`, (value) => {
      one.direction = one.direction.map((v, a) => (a === axis ? value : v));
      item.direction = one.direction;
      this.update(i);
      for (const sphere of this.result.spheres) sphere.draw();
    });
    const sliders = [slide(0, "Azimuth"), slide(1, "Elevation")];
    const text = el("p", { class: "note" });
    this.outputs[i] = { sliders, text };
    this.update(i);
    const field = el("input", { type: "text", value: one.name, maxlength: 40, placeholder: `Source ${one.number}`, "aria-label": `Name of source ${one.number}`, onchange: () => this.rename(one, item, field.value) });
    const others = this.sources.filter((other) => other !== one);
    const merge = el("select", { "aria-label": `Merge ${name} with`, onchange: () => this.merge(one, this.sources.find((other) => String(other.number) === merge.value)) },
      el("option", { value: "" }, "Merge with …"), others.map((other) => el("option", { value: other.number }, other.name || `Source ${other.number}`)));
    return el("section", { class: "card source", style: { "--colour": item.colour, "--on": item.on }, "aria-label": `Correct ${name}` },
      el("div", { class: "row" }, badge({ number: one.number, ...item }), el("div", { class: "grow" }, field, text),
        el("div", { class: "sliders" }, el("label", {}, el("span", { "aria-hidden": "true" }, "↔"), sliders[0]), el("label", {}, el("span", { "aria-hidden": "true" }, "↕"), sliders[1]))),
      el("p", { class: "fields spaced" }, others.length ? merge : null,
        this.sources.length < MAX_SOURCES ? el("button", { "aria-label": `Split ${name}`, onclick: () => this.split(one) }, "Split") : null,
        others.length ? el("button", { "aria-label": `Remove ${name}`, onclick: () => this.change(others, `${name} removed`) }, "Remove") : null));
  }

  update(i) {
    const { sliders, text } = this.outputs[i], { direction } = this.sources[i];
    setSliders(sliders, direction);
    text.textContent = formatDirection(direction);
  }

  moved(item) {
    item.one.direction = item.direction;
    this.update(this.sources.indexOf(item.one));
    for (const sphere of this.result.spheres) sphere.draw();
  }

  change(sources, text) {
    this.sources = sources;
    this.show();
    announce(text);
    this.result.list.querySelector("input")?.focus(); // the pressed control no longer exists
  }

  // The louder one keeps its direction and number.
  merge(one, other) {
    const [kept, gone] = one.share >= other.share ? [one, other] : [other, one];
    Object.assign(kept, { name: kept.name || gone.name, share: kept.share + gone.share });
    this.change(this.sources.filter((source) => source !== gone), `Source ${gone.number} merged with source ${kept.number}`);
  }

  split(one) {
    const turned = (degrees) => [((one.direction[0] + degrees + 540) % 360) - 180, one.direction[1]];
    const other = this.fresh(turned(-SPLIT_DEGREES));
    Object.assign(one, { direction: turned(SPLIT_DEGREES) });
    const at = this.sources.indexOf(one) + 1;
    this.change([...this.sources.slice(0, at), other, ...this.sources.slice(at)], `Source ${one.number} split`);
  }

  // A name is valid at once, also without another separation.
  rename(one, item, name) {
    one.name = item.name = name.trim();
    for (const sphere of this.result.spheres) sphere.draw(); // the card stays: it may hold the focus
    if (one.m !== null) this.result.setName(one.m, one.name);
  }

  again() {
    const values = { ...this.result.settings.values(), n_sources: null };
    return this.result.separate("separate", {
      ...values, directions: this.sources.map((one) => one.direction), names: this.sources.map((one) => one.name), numbers: this.sources.map((one) => one.number),
    });
  }
}
