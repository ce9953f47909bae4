// Requests to the studio. Addresses are relative: the token is a part of the page's own.

const KEY = "earatlas-session";
let session = null;

export class Refused extends Error {}
export class Left extends Error {} // the user no longer wants it

async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused("The studio does not answer. Is `earatlas studio` still running?");
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    if (answer.status === 410) sessionStorage.removeItem(KEY + location.pathname);
    throw new Refused(value.error || `The studio refused this (${answer.status}).`);
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
export const fileOf = (recording, name) => address(`recordings/${recording}/files/${encodeURIComponent(name)}`);

export function socket(path) {
  const url = new URL(address(path), location.href);
  url.protocol = "ws:";
  return new WebSocket(url);
}

// Upload with progress, which fetch does not tell; `told` gets shares.
export function upload(path, body, query, told = () => {}, stop = undefined) {
  const values = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const sent = new XMLHttpRequest();
  sent.open("POST", `${address(path)}?${new URLSearchParams(values)}`);
  sent.upload.onprogress = (event) => event.lengthComputable && told(event.loaded / event.total);
  return new Promise((resolve, reject) => {
    sent.onload = () => {
      let value = {};
      try { value = JSON.parse(sent.responseText); } catch { /* no JSON: a refusal of the guard */ }
      if (sent.status < 300) resolve(value);
      else reject(new Refused(value.error || `The studio refused this (${sent.status}).`));
    };
    sent.onabort = () => reject(new Left());
    stop?.addEventListener("abort", () => sent.abort());
    sent.onerror = () => reject(new Refused("The upload broke off. Is the file too large, or the studio gone?"));
    sent.send(body);
  });
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

// Ask how far a job is until it has ended; `told` gets every state, with `answer` when it is new,
// and says false when nobody looks any more.
export async function followed(id, told) {
  let seen = 0;
  for (;;) {
    const job = await get(`jobs/${id}?seen=${seen}`);
    const fresh = job.answers !== seen;
    seen = job.answers;
    if (told(job, fresh) === false) return { ...job, state: "left" };
    if (["done", "failed", "cancelled"].includes(job.state)) return job;
    await pause(0.1);
  }
}

export const cancel = (id) => remove(`jobs/${id}`);
