// Input devices: a list to choose from, and meters of both ears.

import { el, setContent } from "./dom.js";

const FLOOR = -60; // dB, lower end of the meters
const CLIPPED = 0.999; // of full scale
const HOLD = 2; // seconds that clipping is shown
const QUIET = 40; // dB between the ears from which on one of them counts as silent

// A list of inputs. Browsers name them only after the microphones were allowed once.
export class DeviceChoice {
  constructor(device, onChange) {
    this.device = device;
    this.select = el("select", { "aria-label": "Input", onchange: () => { this.device = this.select.value; onChange(this.device); } });
    this.label = el("label", { class: "device" }, "Input ", this.select);
    this.update = () => this.list();
    navigator.mediaDevices?.addEventListener?.("devicechange", this.update);
    this.list();
  }

  close() { navigator.mediaDevices?.removeEventListener?.("devicechange", this.update); }

  async list() {
    const all = (await navigator.mediaDevices?.enumerateDevices?.().catch(() => [])) ?? [];
    const inputs = all.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId && deviceId !== "default");
    if (!inputs.some(({ deviceId }) => deviceId === this.device)) this.device = "";
    setContent(this.select, el("option", { value: "" }, "Default input"), inputs.map(({ deviceId, label }, i) => el("option", { value: deviceId, selected: deviceId === this.device }, label || `Input ${i + 1}`)));
    this.select.value = this.device;
  }
}

// Levels of both ears, clipping, and a silent ear.
export class EarMeters {
  constructor() {
    this.ears = ["Left ear", "Right ear"].map((name) => ({
      name, meter: el("meter", { min: FLOOR, max: 0, low: -50, high: -3, optimum: -20, value: FLOOR, "aria-label": `Level of the ${name.toLowerCase()}` }), text: el("span", { class: "decibels" }, "–"), clip: el("b", { class: "clip", hidden: true }, "clipping"), until: 0, smooth: null,
    }));
    this.note = el("p", { class: "note", role: "status" });
    this.card = el("section", { class: "card ears", "aria-label": "Input levels" }, this.ears.map(({ name, meter, text, clip }) => el("label", {}, el("span", {}, name), meter, text, clip)), this.note);
  }

  update(left, right, rate) {
    [left, right].forEach((block, i) => {
      const ear = this.ears[i];
      let power = 0, peak = 0;
      for (const x of block) { power += x * x; if (Math.abs(x) > peak) peak = Math.abs(x); }
      const level = 10 * Math.log10(Math.max(power / block.length, 1e-12));
      const share = Math.min(block.length / rate / 0.3, 1); // smoothed over 0.3 s, but a rise shows at once
      ear.smooth = ear.smooth === null || level > ear.smooth ? level : ear.smooth + share * (level - ear.smooth);
      ear.meter.value = Math.max(FLOOR, ear.smooth);
      ear.text.textContent = ear.smooth < FLOOR ? `below −${-FLOOR} dB` : `${Math.round(ear.smooth)} dB`.replace("-", "−");
      const now = performance.now() / 1000;
      if (peak >= CLIPPED) ear.until = now + HOLD;
      ear.clip.hidden = now > ear.until;
    });
    const [l, r] = this.ears.map(({ smooth }) => smooth);
    const quiet = Math.max(l, r) > FLOOR && Math.abs(l - r) > QUIET ? this.ears[l < r ? 0 : 1].name : null;
    const text = quiet ? `${quiet}: almost no sound. Check its microphone and the choice of the input.` : "";
    if (this.note.textContent !== text) this.note.textContent = text;
  }
}
