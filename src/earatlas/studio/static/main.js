// The page: tabs, the selected head, dropped files, and keys.

import { get, open, RequestError } from "./api.js";
import { el, setContent } from "./dom.js";
import { failure } from "./recording.js";
import * as recording from "./recording.js";
import * as live from "./live.js";
import * as scene from "./scene.js";
import * as explainer from "./explainer.js";
import { HeadChoice } from "./heads.js";

const PAGES = { recording: ["Recording", recording], scene: ["Make a scene", scene], live: ["Live", live], explainer: ["How it works", explainer] };

const app = {
  head: null,
  pending: null, // sound recorded on the live page that is to be separated
  sphere: null,
  page: null,
  choice: null,
  selectHead(id) { this.head = id; this.choice.show(); },
};

const main = document.getElementById("main");
let unmount = () => {};

function navigate() {
  const [name] = location.hash.slice(1).split("/");
  const selected = PAGES[name] ? name : "recording";
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.page === selected) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  unmount();
  document.title = `${PAGES[selected][0]} · earatlas studio`;
  app.page = null;
  unmount = PAGES[selected][1].mount(main, app);
}

// Files may be dropped anywhere: .sofa, .atlas and folders are heads, all others are recordings.
function handleDrops() {
  const highlight = (on) => document.body.classList.toggle("over", on);
  addEventListener("dragover", (event) => { event.preventDefault(); highlight(true); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) highlight(false); });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    highlight(false);
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    const sounds = [];
    for (const [i, file] of [...event.dataTransfer.files].entries()) {
      if (entries[i]?.isDirectory) app.choice.addFolder(entries[i]);
      else if (/\.(sofa|atlas)$/i.test(file.name)) app.choice.addFile(file);
      else if (!app.page?.dropped?.(file)) sounds.push(file);
    }
    if (!sounds.length) return;
    if (!app.page?.separateFiles) { location.hash = "recording"; await new Promise((done) => setTimeout(done)); }
    app.page?.separateFiles?.(sounds);
  });
}

// Whether a key belongs to the focused control; sliders only need arrow and paging keys.
function isTyping({ target, key }) {
  if (target.type === "range") return /^(Arrow|Page|Home|End)/.test(key);
  return /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
}

function handleKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    if (event.key === " " && event.target.closest("button, a, summary")) return;
    if (app.page?.key?.(event)) event.preventDefault();
  });
}

// The page's address is used by the tabs, so the link to the content moves the focus itself.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });

async function start() {
  try {
    const { heads } = await open();
    app.head = heads[0].id;
    app.choice = new HeadChoice(document.getElementById("heads"), app);
    app.choice.show(heads);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    setContent(main, failure(error.message));
    return;
  }
  setContent(document.getElementById("tabs"), Object.entries(PAGES).map(([name, [label]]) => el("a", { href: `#${name}`, "data-page": name }, label)));
  addEventListener("hashchange", navigate);
  handleDrops();
  handleKeys();
  navigate();
  document.body.dataset.ready = "true";
}

export { app, get };
start();
