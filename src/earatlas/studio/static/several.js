// Several recordings: upload all of them, and save the results of one or all as a ZIP file.

import { AbortedError, address, pollJob, post, RequestError, upload } from "./api.js";
import { announce, el, icon } from "./dom.js";

const PAUSE = 1.5; // seconds until an upload is tried again while the queue is full

// Upload files one after the other, waiting while the queue of the studio is full. `onProgress` gets a
// text and a fraction; returns the sentences about files that were refused.
export async function uploadAll(files, query, onProgress, signal) {
  const refused = [];
  for (const [i, file] of files.entries()) {
    const text = `uploading ${i + 1} of ${files.length}`;
    for (let sent = false; !sent && !signal.aborted;) {
      try {
        await upload("recordings", file, { ...query, name: file.name }, (fraction) => onProgress(text, (i + fraction) / files.length), signal);
        sent = true;
      } catch (error) {
        if (error instanceof AbortedError) return refused;
        if (!(error instanceof RequestError)) throw error;
        sent = error.status !== 429;
        if (sent) refused.push(`${file.name}: ${error.message}`);
        else { onProgress(`${text}: waiting for earlier recordings`, i / files.length); await new Promise((done) => { setTimeout(done, 1000 * PAUSE); }); }
      }
    }
  }
  return refused;
}

// A button that saves recordings as one ZIP file: sounds, pictures, tables, JSON and reports. `ids()` is
// called when it is used.
export function zipButton(label, ids) {
  const text = el("span", {}, label);
  const problem = el("span", { class: "note", role: "alert" });
  const run = async () => {
    const recordings = ids();
    button.disabled = true;
    problem.textContent = "";
    try {
      const { job } = await post("pictures", { recordings });
      const done = await pollJob(job, (state) => {
        text.textContent = state.state === "waiting" ? "Waiting …" : `Drawing ${Math.round(100 * state.progress)} %`;
        return button.isConnected;
      });
      if (done.state === "failed") throw new RequestError(done.error);
      if (done.state === "done") {
        el("a", { href: address(`archive?recordings=${recordings.join(",")}`), download: "" }).click();
        announce("The ZIP file is being saved.");
      }
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      problem.textContent = error.message;
    }
    text.textContent = label;
    button.disabled = false;
  };
  const button = el("button", { onclick: run, title: "Sounds, pictures, tables, JSON and report" }, icon("down"), text);
  return el("span", { class: "zip" }, button, problem);
}
