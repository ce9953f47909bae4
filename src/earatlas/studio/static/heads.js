// Selection of the head: from a list, or learned from a dropped file or folder.

import { AbortedError, address, cancel, get, pollJob, post, remove, RequestError, upload } from "./api.js";
import { el, icon, announce, setContent } from "./dom.js";
import { failure } from "./recording.js";
import { Sphere } from "./sphere.js";

export class HeadChoice {
  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.heads = [];
    this.queue = Promise.resolve(); // heads are learned one after the other
    this.waiting = 0;
    this.dialog = el("dialog", { class: "card", "aria-label": "Head" });
    this.dialog.addEventListener("close", () => { this.sphere?.close(); this.show(); });
    document.body.append(this.dialog);
  }

  async refresh() { this.show((await get("heads")).heads); }

  get selected() { return this.heads.find((head) => head.id === this.app.head); }

  show(heads = this.heads) {
    this.heads = heads;
    const select = el("select", { "aria-label": "Head", onchange: () => { this.app.head = select.value; this.app.page?.headChanged?.(); } },
      heads.filter((head) => head.ready).map((head) => el("option", { value: head.id, selected: head.id === this.app.head }, head.name)));
    const input = el("input", { type: "file", class: "visually-hidden", accept: ".sofa,.atlas", tabindex: -1, "aria-hidden": "true", onchange: () => input.files.length && this.addFile(input.files[0]) });
    const folder = el("input", { type: "file", class: "visually-hidden", webkitdirectory: true, tabindex: -1, "aria-hidden": "true", onchange: () => folder.files.length && this.addFiles([...folder.files].map((file) => [file.webkitRelativePath.split("/").slice(1).join("/"), file]), folder.files[0].webkitRelativePath.split("/")[0]) });
    this.pick = () => { input.value = ""; input.click(); }; // so that the same file can be chosen again
    this.pickFolder = () => { folder.value = ""; folder.click(); };
    this.button = el("button", { class: this.learned ? "main" : null, onclick: () => this.openDialog() }, this.buttonText());
    setContent(this.root, el("label", {}, el("span", {}, "Head "), select), this.button, input, folder);
    this.app.page?.headChanged?.();
  }

  // The choice of the head on the start page, with what the selected one is for.
  picker() {
    const uses = { people: "For the ears of any person, learned from 31 measured people. A measurement of the head that made the recording is more exact.", simulated: "A computed sphere with two ears: only for sounds that were made with it, such as the two voices.", given: "The head that the studio was started with." };
    return [el("p", { class: "choices" }, "Whose ears made the recording?", el("span", { class: "choices", role: "group", "aria-label": "Head of the recording" },
      this.heads.filter((head) => head.ready).map((head) => el("button", { class: "toggle", "aria-pressed": String(head.id === this.app.head), onclick: () => this.app.selectHead(head.id) }, head.name)),
      el("button", { class: "toggle", onclick: () => this.openDialog() }, "Your own …"))),
    el("p", { class: "note" }, uses[this.app.head] ?? "A head that you added.")];
  }

  // The button shows the progress of a head that is learned while the dialog is closed.
  buttonText() {
    if (this.learned) return `${this.learned.name} is learned`;
    const more = this.waiting ? `, ${this.waiting} waiting` : "";
    return this.busy ? `Learning, ${Math.round(100 * (this.fraction ?? 0))} %${more}` : "Heads …";
  }

  openDialog() {
    if (this.learned) this.select(this.learned);
    else if (this.busy) this.dialog.showModal();
    else this.about();
  }

  select({ id, name, facts }) {
    this.learned = null;
    this.app.selectHead(id);
    this.showDescription(name, facts, "done");
  }

  // --- about -------------------------------------------------------------------------------

  async about() {
    this.open(el("h1", {}, this.selected.name), el("p", { class: "note" }, "Loading …"));
    try {
      const { job } = await post(`heads/${this.app.head}/describe`);
      const done = await pollJob(job, () => {});
      if (done.state === "done") this.showDescription(this.selected.name, done.result, "done");
      else this.open(failure(done.error));
    } catch (error) { this.open(failure(error.message)); }
  }

  open(...content) {
    this.sphere?.close();
    this.sphere = null;
    setContent(this.dialog, el("form", { method: "dialog", class: "close" }, el("button", { "aria-label": "Close" }, "Close")), ...content,
      this.busy ? null : el("p", { class: "choices" }, this.wrongWayChoice()),
      this.busy ? null : el("p", { class: "choices" }, el("button", { onclick: () => this.pick() }, icon("file"), "Learn a .sofa file or open an .atlas file"),
        el("button", { onclick: () => this.pickFolder() }, icon("file"), "Learn a folder of recordings"),
        el("span", { class: "note" }, "or drop it on the page")));
    if (!this.dialog.open) this.dialog.showModal();
    if (!this.dialog.contains(document.activeElement)) this.dialog.querySelector("button").focus();
  }

  // What to correct in a head whose sounds from the left are louder in the right ear.
  wrongWayChoice() {
    const choices = [["", "warn me"], ["ears", "swap the ears"], ["azimuths", "negate the azimuths"]];
    const select = el("select", { onchange: () => { this.wrongWay = select.value; } },
      choices.map(([value, label]) => el("option", { value, selected: value === (this.wrongWay ?? "") }, label)));
    return el("label", {}, "If left and right are the wrong way round: ", select);
  }

  // --- a new one ---------------------------------------------------------------------------

  // Learn a head after those that were added before.
  enqueue(name, learn) {
    if (this.busy) { this.waiting += 1; this.button.textContent = this.buttonText(); announce(`${name} is learned next`); }
    const waited = this.busy;
    this.busy = true;
    this.queue = this.queue.catch(() => {}).then(() => { if (waited) this.waiting -= 1; return learn(); });
    return this.queue;
  }

  addFile(file) { return this.enqueue(file.name, () => this.learnFile(file)); }

  addFolder(entry) { return this.enqueue(entry.name, () => this.learnFolder(entry)); }

  addFiles(files, name) { return this.enqueue(name, () => this.learnFiles(files, name)); }

  async learnFile(file) {
    this.begin(file.name);
    try {
      const added = await upload("heads", file, { name: file.name, wrong_way: this.wrongWay || null }, (fraction) => this.progress?.("uploading", fraction), this.abort.signal);
      await this.follow(added.head.id, added.job, file.name);
    } catch (error) { this.failed(error); }
  }

  async learnFolder(entry) {
    this.begin(entry.name);
    try { await this.learnFiles(await filesBelow(entry, ""), entry.name); } catch (error) { this.failed(error); }
  }

  async learnFiles(files, name) {
    this.begin(name);
    try {
      const accepted = files.filter(([path]) => /\.(csv|wav|flac|ogg|aiff?)$/i.test(path));
      const { head } = await upload("folders", "", { name });
      for (const [i, [path, file]] of accepted.entries()) {
        await upload(`folders/${head}`, file, { name: path }, () => {}, this.abort.signal);
        this.progress?.(`uploading ${i + 1} of ${accepted.length}`, (i + 1) / accepted.length);
      }
      const { job } = await post(`folders/${head}/learn`, { wrong_way: this.wrongWay || null });
      await this.follow(head, job, name);
    } catch (error) { this.failed(error); }
  }

  begin(name) {
    this.busy = true;
    this.learned = null;
    this.abort = new AbortController();
    this.cancel = () => this.abort.abort();
    this.open(el("h1", {}, name), this.progressRow());
    announce(`Learning ${name}`);
  }

  // Progress in the dialog and in the button of the page.
  progressRow() {
    const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress" });
    const stage = el("p", { class: "note" }, " ");
    this.progress = (text, fraction) => {
      bar.value = this.fraction = fraction;
      stage.textContent = text || " ";
      this.button.textContent = this.buttonText();
    };
    return el("div", { class: "row" }, el("div", { class: "grow" }, bar, stage), el("button", { onclick: () => this.cancel() }, "Cancel"));
  }

  failed(error) {
    this.busy = false;
    if (error instanceof AbortedError) { this.dialog.close(); return; }
    if (!(error instanceof RequestError)) throw error;
    this.open(failure(error.message));
  }

  async follow(id, job, name) {
    this.cancel = () => cancel(job);
    const done = await pollJob(job, (state, fresh) => {
      if (fresh && state.result?.points && state.state === "running" && this.dialog.open) this.showDescription(name, state.result, "learning");
      this.progress?.(state.stage, state.progress);
    });
    this.busy = false;
    if (done.state === "failed") { this.open(failure([done.error, done.details])); return; }
    if (done.state === "cancelled") { this.dialog.close(); this.show(); return; }
    this.learned = { id, name, facts: done.result };
    await this.refresh();
    announce(`${name} is learned`);
    if (this.dialog.open) this.select(this.learned); // otherwise the user is working with another head
  }

  showDescription(name, facts, state) {
    const held = facts.held_out;
    const rows = [
      ["Directions", facts.directions && `${facts.directions}${facts.spacing_degrees ? `, ${facts.spacing_degrees.toFixed(1)}° apart` : ""}`],
      ["Largest gap", facts.largest_gap_degrees && `${facts.largest_gap_degrees.toFixed(1)}°`],
      ["Test error", held && `median ${held.median_degrees.toFixed(1)}°, ${(100 * held.beyond_30_share).toFixed(1)} % above 30° (${held.held_out} held-out directions)`],
      ["Model", facts.charts && `${facts.charts} charts (local linear models), on the ${facts.space}`],
      ["Reverberation", facts.reverberant === undefined ? null : facts.reverberant ? "supported" : "not supported: anechoic sound only, or the room of the measurement"],
      ["Licence", facts.licence],
    ].filter(([, value]) => value);
    const canvas = el("canvas", { class: "sphere", tabindex: 0, role: "img", "aria-label": `Sphere with the ${facts.points_label}; arrow keys rotate it` });
    const notes = [...new Set([...facts.notes, ...(facts.warnings ?? [])])];
    this.open(el("h1", {}, name), state === "learning" ? this.progressRow() : null,
      el("div", { class: "two about" }, el("div", {}, canvas, el("p", { class: "note" }, facts.points_label)),
        el("div", {}, el("dl", {}, rows.map(([key, value]) => [el("dt", {}, key), el("dd", {}, String(value))]).flat()),
          notes.length ? el("ul", { class: "doubts" }, notes.map((note) => el("li", {}, note))) : null,
          facts.coverage ? coverage(facts.coverage) : null)),
      state === "done" ? this.ownActions(facts) : null);
    this.sphere = new Sphere(canvas);
    this.sphere.set({ points: facts.points });
  }

  // Save, rename and remove a head that the user has added.
  ownActions(facts) {
    const head = this.selected;
    if (!head?.own) return null;
    const field = el("input", { type: "text", value: head.name, maxlength: 120, "aria-label": "Name of the head" });
    const change = async (send, then) => {
      try { await send(); await this.refresh(); then(); } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        this.open(failure(error.message));
      }
    };
    const rename = () => change(() => post(`heads/${head.id}`, { name: field.value }), () => this.showDescription(this.selected.name, facts, "done"));
    const drop = () => {
      this.app.head = this.heads[0].id;
      return change(() => remove(`heads/${head.id}`), () => this.dialog.close());
    };
    return el("p", { class: "choices" }, field, el("button", { onclick: rename }, "Rename"),
      el("a", { class: "button", href: address(`heads/${head.id}/atlas`), download: "" }, icon("down"), "Save as a file"),
      el("button", { onclick: drop }, "Remove"));
  }
}

// Density of the measured directions: dense cells are dark.
function coverage(cells) {
  const canvas = el("canvas", { width: cells[0].length, height: cells.length, class: "coverage", role: "img", "aria-label": "Density of the measured directions, left to right and top to bottom" });
  const context = canvas.getContext("2d");
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  cells.forEach((row, y) => row.forEach((density, x) => { context.globalAlpha = density; context.fillStyle = colour; context.fillRect(x, y, 1, 1); }));
  const ticks = (name, texts) => el("span", { class: `ticks ${name}` }, texts.map((text) => el("span", {}, text)));
  return el("figure", { class: "covered" }, el("figcaption", {}, "Coverage ", el("span", {}, "dark where directions were measured")),
    ticks("rows", ["90°", "0°", "−90°"]), canvas, ticks("columns", ["180°", "90° left", "0°", "90° right", "180°"]));
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
