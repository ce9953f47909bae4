// The head that hears: chosen from a list, dropped as a file or a folder, and watched being learned.

import { cancel, followed, get, Left, post, Refused, upload } from "./api.js";
import { el, icon, say, show } from "./dom.js";
import { failure } from "./recording.js";
import { Sphere } from "./sphere.js";

export class HeadChoice {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.heads = [];
    this.dialog = el("dialog", { class: "card", "aria-label": "Head" });
    this.dialog.addEventListener("close", () => { this.ball?.close(); this.show(); });
    document.body.append(this.dialog);
  }

  async refresh() { this.show((await get("heads")).heads); }

  get chosen() { return this.heads.find((head) => head.id === this.app.head); }

  show(heads = this.heads) {
    this.heads = heads;
    const select = el("select", { onchange: () => { this.app.head = select.value; } },
      heads.filter((head) => head.ready).map((head) => el("option", { value: head.id, selected: head.id === this.app.head }, head.name)));
    const input = el("input", { type: "file", class: "unseen", accept: ".sofa,.atlas", tabindex: -1, "aria-hidden": "true", onchange: () => input.files.length && this.take(input.files[0]) });
    const folder = el("input", { type: "file", class: "unseen", webkitdirectory: true, tabindex: -1, "aria-hidden": "true", onchange: () => folder.files.length && this.takeFiles([...folder.files].map((file) => [file.webkitRelativePath.split("/").slice(1).join("/"), file]), folder.files[0].webkitRelativePath.split("/")[0]) });
    this.pick = () => { input.value = ""; input.click(); }; // the same one may be chosen again
    this.pickFolder = () => { folder.value = ""; folder.click(); };
    this.button = el("button", { class: this.learned ? "main" : null, onclick: () => this.look() }, this.words());
    show(this.root, el("label", {}, el("span", {}, "Head "), select), this.button, input, folder);
  }

  // The button tells of a head that is learned behind a closed dialog.
  words() {
    if (this.learned) return `${this.learned.name} is learned`;
    return this.busy ? `Learning, ${Math.round(100 * (this.share ?? 0))} %` : "Heads …";
  }

  look() {
    if (this.learned) this.choose(this.learned);
    else if (this.busy) this.dialog.showModal();
    else this.about();
  }

  choose({ id, name, facts }) {
    this.learned = null;
    this.app.chooseHead(id);
    this.described(name, facts, "done");
  }

  // --- about -------------------------------------------------------------------------------

  async about() {
    this.open(el("h1", {}, this.chosen.name), el("p", { class: "note" }, "Looking at it …"));
    try {
      const { job } = await post(`heads/${this.app.head}/describe`);
      const done = await followed(job, () => {});
      if (done.state === "done") this.described(this.chosen.name, done.answer, "done");
      else this.open(failure(done.error));
    } catch (error) { this.open(failure(error.message)); }
  }

  open(...content) {
    this.ball?.close();
    this.ball = null;
    show(this.dialog, el("form", { method: "dialog", class: "close" }, el("button", { "aria-label": "Close" }, "Close")), ...content,
      this.busy ? null : el("p", { class: "choices" }, el("button", { onclick: () => this.pick() }, icon("file"), "Learn a .sofa file, or take an .atlas"),
        el("button", { onclick: () => this.pickFolder() }, icon("file"), "Learn a folder of recordings"),
        el("span", { class: "note" }, "or drop either on the page")));
    if (!this.dialog.open) this.dialog.showModal();
    if (!this.dialog.contains(document.activeElement)) this.dialog.querySelector("button").focus();
  }

  // --- a new one ---------------------------------------------------------------------------

  async take(file) {
    this.begin(file.name);
    try {
      const taken = await upload("heads", file, { name: file.name }, (share) => this.progress?.("sending", share), this.stop.signal);
      await this.learning(taken.head.id, taken.job, file.name);
    } catch (error) { this.failed(error); }
  }

  async takeFolder(entry) {
    this.begin(entry.name);
    try { await this.takeFiles(await filesBelow(entry, ""), entry.name); } catch (error) { this.failed(error); }
  }

  async takeFiles(files, name) {
    this.begin(name);
    try {
      const wanted = files.filter(([path]) => /\.(csv|wav|flac|ogg|aiff?)$/i.test(path));
      const { head } = await upload("folders", "", { name });
      for (const [i, [path, file]] of wanted.entries()) {
        await upload(`folders/${head}`, file, { name: path }, () => {}, this.stop.signal);
        this.progress?.(`sending ${i + 1} of ${wanted.length}`, (i + 1) / wanted.length);
      }
      const { job } = await post(`folders/${head}/learn`);
      await this.learning(head, job, name);
    } catch (error) { this.failed(error); }
  }

  begin(name) {
    this.busy = true;
    this.learned = null;
    this.stop = new AbortController();
    this.giveUp = () => this.stop.abort();
    this.open(el("h1", {}, name), this.learningRow());
    say(`Learning ${name}`);
  }

  // How far it is, here and in the button of the page.
  learningRow() {
    const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
    const words = el("p", { class: "note" }, " ");
    this.progress = (text, share) => {
      bar.value = this.share = share;
      words.textContent = text || " ";
      this.button.textContent = this.words();
    };
    return el("div", { class: "row" }, el("div", { class: "grow" }, bar, words), el("button", { onclick: () => this.giveUp() }, "Cancel"));
  }

  failed(error) {
    this.busy = false;
    if (error instanceof Left) { this.dialog.close(); return; }
    if (!(error instanceof Refused)) throw error;
    this.open(failure(error.message));
  }

  async learning(id, job, name) {
    this.giveUp = () => cancel(job);
    const done = await followed(job, (state, fresh) => {
      if (fresh && state.answer?.points && state.state === "running" && this.dialog.open) this.described(name, state.answer, "learning");
      this.progress?.(state.words, state.share);
    });
    this.busy = false;
    if (done.state === "failed") { this.open(failure([done.error, done.details])); return; }
    if (done.state === "cancelled") { this.dialog.close(); this.show(); return; }
    this.learned = { id, name, facts: done.answer };
    await this.refresh();
    say(`${name} is learned`);
    if (this.dialog.open) this.choose(this.learned); // else who works with another is not disturbed
  }

  described(name, facts, state) {
    const held = facts.held_out;
    const rows = [
      ["Directions", facts.directions && `${facts.directions}${facts.spacing_degrees ? `, ${facts.spacing_degrees}° apart` : ""}`],
      ["Largest gap", facts.largest_gap_degrees && `${facts.largest_gap_degrees}°`],
      ["Held out", held && `${held.held_out} directions: median error ${held.median_degrees.toFixed(1)}°, ${(100 * held.beyond_30_share).toFixed(1)} % beyond 30°`],
      ["Charts", facts.charts && `${facts.charts}, on the ${facts.space}`],
      ["Rooms", facts.rooms === undefined ? null : facts.rooms ? "ready for rooms that were never learned" : "for the open, or the room it was measured in"],
      ["Licence", facts.licence],
    ].filter(([, value]) => value);
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": `${facts.points_are} on a sphere; arrow keys turn it` });
    const notes = [...new Set([...facts.notes, ...(facts.warnings ?? [])])];
    this.open(el("h1", {}, name), state === "learning" ? this.learningRow() : null,
      el("div", { class: "two about" }, el("div", {}, canvas, el("p", { class: "note" }, facts.points_are)),
        el("div", {}, el("dl", {}, rows.map(([key, value]) => [el("dt", {}, key), el("dd", {}, String(value))]).flat()),
          notes.length ? el("ul", { class: "doubts" }, notes.map((note) => el("li", {}, note))) : null,
          facts.coverage ? coverage(facts.coverage) : null)));
    this.ball = new Sphere(canvas);
    this.ball.set({ points: facts.points });
  }
}

// Where a head was measured: a cell is as dark as it is dense.
function coverage(cells) {
  const canvas = el("canvas", { width: cells[0].length, height: cells.length, class: "coverage", role: "img", "aria-label": "Density of measured directions, left to right and up to down" });
  const context = canvas.getContext("2d");
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  cells.forEach((row, y) => row.forEach((share, x) => { context.globalAlpha = share; context.fillStyle = colour; context.fillRect(x, y, 1, 1); }));
  return el("figure", {}, el("figcaption", {}, "Coverage ", el("span", {}, "left to right, above to below")), canvas);
}

async function filesBelow(entry, path) {
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return found;
    for (const one of entries) {
      if (one.isDirectory) found.push(...await filesBelow(one, `${path}${one.name}/`));
      else found.push([`${path}${one.name}`, await new Promise((resolve, reject) => one.file(resolve, reject))]);
    }
  }
}
