// The page: its tabs, the head that is chosen, files that are dropped, and keys.

import { get, open, Refused } from "./api.js";
import { el, show } from "./dom.js";
import { failure } from "./recording.js";
import * as recording from "./recording.js";
import * as live from "./live.js";
import * as scene from "./scene.js";
import * as story from "./story.js";
import { HeadChoice } from "./heads.js";

const PAGES = { recording: ["Recording", recording], scene: ["Make a scene", scene], live: ["Live", live], story: ["How it works", story] };

const app = {
  head: null,
  pending: null, // sound that was recorded and is not taken apart yet
  sphere: null,
  page: null,
  choice: null,
  chooseHead(id) { this.head = id; this.choice.show(); },
};

const main = document.getElementById("main");
let leave = () => {};

function go() {
  const [name] = location.hash.slice(1).split("/");
  const chosen = PAGES[name] ? name : "recording";
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.page === chosen) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  leave();
  document.title = `${PAGES[chosen][0]} · earatlas studio`;
  app.page = null;
  leave = PAGES[chosen][1].mount(main, app);
}

// A file may be dropped anywhere: a head goes to the heads, anything else is a recording.
function drops() {
  const over = (on) => document.body.classList.toggle("over", on);
  addEventListener("dragover", (event) => { event.preventDefault(); over(true); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(false); });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    over(false);
    const entry = event.dataTransfer.items?.[0]?.webkitGetAsEntry?.();
    const file = event.dataTransfer.files[0];
    if (entry?.isDirectory) app.choice.takeFolder(entry);
    else if (file && /\.(sofa|atlas)$/i.test(file.name)) app.choice.take(file);
    else if (file && app.page?.dropped?.(file)) return;
    else if (file) {
      if (!app.page?.take) { location.hash = "recording"; await new Promise((done) => setTimeout(done)); }
      app.page?.take?.(file);
    }
  });
}

// Whether a key is for the control that has the focus; a slider needs arrows alone.
function typed({ target, key }) {
  if (target.type === "range") return /^(Arrow|Page|Home|End)/.test(key);
  return /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
}

function keys() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typed(event)) return;
    if (event.key === " " && event.target.closest("button, a, summary")) return;
    if (app.page?.key?.(event)) event.preventDefault();
  });
}

async function start() {
  try {
    const { heads } = await open();
    app.head = heads[0].id;
    app.choice = new HeadChoice(document.getElementById("heads"), app);
    app.choice.show(heads);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show(main, failure(error.message));
    return;
  }
  show(document.getElementById("tabs"), Object.entries(PAGES).map(([name, [words]]) => el("a", { href: `#${name}`, "data-page": name }, words)));
  addEventListener("hashchange", go);
  drops();
  keys();
  go();
  document.body.dataset.ready = "true";
}

export { app, get };
start();
