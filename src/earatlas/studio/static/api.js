// Requests to the studio. Addresses are relative, because the page's own address contains the token.

const KEY = "earatlas-session";
let session = null;

export class RequestError extends Error { // `status` is that of the response, if there was one
  constructor(message, status = 0) { super(message); this.status = status; }
}
export class AbortedError extends Error {} // the user cancelled an upload

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new RequestError("The studio does not respond. Is `earatlas studio` still running?");
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) {
    if (response.status === 410) sessionStorage.removeItem(KEY + location.pathname);
    throw new RequestError(value.error || `The studio refused the request (status ${response.status}).`, response.status);
  }
  return value;
}

export async function open() {
  session = sessionStorage.getItem(KEY + location.pathname);
  if (session) {
    try { return await get("heads"); } catch { session = null; }
  }
  session = (await request("api/sessions", { method: "POST" })).session;
  sessionStorage.setItem(KEY + location.pathname, session);
  return get("heads");
}

export const address = (path) => `api/${session}/${path}`;
export const get = (path) => request(address(path));
export const post = (path, value = {}) => request(address(path), {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value),
});
export const remove = (path) => request(address(path), { method: "DELETE" });
export const fileAddress = (recording, name) => address(`recordings/${recording}/files/${encodeURIComponent(name)}`);

export function socket(path) {
  const url = new URL(address(path), location.href);
  url.protocol = "ws:";
  return new WebSocket(url);
}

// Upload with progress, which fetch does not report; `onProgress` gets the fraction sent.
export function upload(path, body, query, onProgress = () => {}, abort = undefined) {
  const values = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const sent = new XMLHttpRequest();
  sent.open("POST", `${address(path)}?${new URLSearchParams(values)}`);
  sent.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
  return new Promise((resolve, reject) => {
    sent.onload = () => {
      let value = {};
      try { value = JSON.parse(sent.responseText); } catch { /* plain text of a refused request */ }
      if (sent.status < 300) resolve(value);
      else reject(new RequestError(value.error || `The studio refused the upload (status ${sent.status}).`, sent.status));
    };
    sent.onabort = () => reject(new AbortedError());
    abort?.addEventListener("abort", () => sent.abort());
    sent.onerror = () => reject(new RequestError("The upload was interrupted. The file may be too large, or the studio may have stopped."));
    sent.send(body);
  });
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

// Ask for the state of a job until it has ended. `onUpdate` gets each state and whether its result is
// new, and returns false to stop.
export async function pollJob(id, onUpdate) {
  let version = 0;
  for (;;) {
    const job = await get(`jobs/${id}?version=${version}`);
    const fresh = job.result_version !== version;
    version = job.result_version;
    if (onUpdate(job, fresh) === false) return { ...job, state: "ignored" };
    if (["done", "failed", "cancelled"].includes(job.state)) return job;
    await pause(0.1);
  }
}

export const cancel = (id) => remove(`jobs/${id}`);
