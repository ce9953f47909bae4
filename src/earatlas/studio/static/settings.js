// Settings of a separation, as on the command line, and the files of a result.

import { fileAddress } from "./api.js";
import { el, icon, setContent } from "./dom.js";
import { zipButton } from "./several.js";

const RATES = [["", "that of the recording"], ["16000", "16 kHz"], ["44100", "44.1 kHz"], ["48000", "48 kHz"]];

export class Settings {
  constructor(result, hasReport) {
    this.result = result;
    this.hasReport = hasReport;
    const { view } = result, { settings } = view;
    const choose = (choices, chosen) => el("select", {}, choices.map(([value, label]) => el("option", { value, selected: String(chosen ?? "") === String(value) }, label)));
    const given = settings.directions ? [["given", `as corrected (${settings.directions.length})`]] : [];
    this.count = choose([...given, ["", "automatic"], ...[1, 2, 3, 4, 5, 6].map((n) => [n, String(n)])], settings.directions ? "given" : settings.n_sources);
    this.rendering = choose([["spatial", "spatial filters"], ["soft", "soft masks"], ["binary", "binary masks"]], settings.rendering);
    this.rate = choose(RATES, settings.rate);
    this.dry = el("input", { type: "checkbox", checked: Boolean(settings.dry) });
    const channels = Array.from({ length: Math.max(view.n_channels ?? 2, 2) }, (_, i) => [i, String(i + 1)]);
    this.ears = (settings.channels ?? [0, 1]).map((channel) => choose(channels, channel));
    const swap = () => { [this.ears[0].value, this.ears[1].value] = [this.ears[1].value, this.ears[0].value]; };
    this.problem = el("p", { class: "note", role: "alert" });
    this.files = el("p", { class: "choices small" });
    // A separation ends with its report; it can be repeated from then on.
    this.apply = el("button", { onclick: () => result.separate("separate", this.values()), disabled: !hasReport, title: "Separate again with these settings and the head selected above" }, icon("again"), "Apply");
    if (hasReport) this.showReport(); else this.showWriting();
    const changed = Boolean(settings.rate || settings.dry) || String(settings.channels ?? "0,1") !== "0,1";
    this.card = el("section", { class: "card more", "aria-label": "Settings and downloads" },
      el("p", { class: "fields" }, el("label", {}, "Sources ", this.count), el("label", {}, "Rendering ", this.rendering), this.apply),
      el("details", { open: changed }, el("summary", {}, "Channels and output"),
        el("p", { class: "fields" }, el("label", {}, "Left ear: channel ", this.ears[0]), el("label", {}, "right ear: channel ", this.ears[1]), el("button", { onclick: swap }, "Swap ears")),
        el("p", { class: "fields" }, el("label", {}, "Sampling rate ", this.rate), el("label", {}, this.dry, " reduce reverberation"))),
      this.problem, this.files);
  }

  // The fields of a request.
  values() {
    const { view } = this.result;
    const common = { rendering: this.rendering.value, rate: this.rate.value ? Number(this.rate.value) : null, dry: this.dry.checked, channels: this.ears.map((ear) => Number(ear.value)) };
    if (this.count.value !== "given") return { ...common, n_sources: this.count.value || null };
    return { ...common, directions: view.sources.map((source) => source.direction), names: view.sources.map((source) => source.label), numbers: view.sources.map((source) => source.number) };
  }

  link(name, label) { return el("a", { class: "button", href: fileAddress(this.result.id, name), download: "" }, icon("down"), label); }

  // The files of the result, with the names of its sources; `last` are those that follow them.
  showFiles(...last) {
    const { files, sources } = this.result.view;
    setContent(this.files, this.link(files.mixture, "Mixture"), files.sounds.map((name, m) => this.link(name, sources[m].label || `Source ${sources[m].number}`)), files.json ? this.link(files.json, "JSON") : null,
      (files.tables ?? []).map((name) => this.link(name, name === "tracks.csv" ? "Tracks (CSV)" : "Sources (CSV)")), last);
  }

  showWriting() { this.showFiles(this.result.view.preliminary ? null : el("span", { class: "note" }, "Writing the report …")); }

  showReport() {
    this.hasReport = true;
    this.showFiles(this.link("report.html", "Report"), zipButton("All as ZIP", () => [this.result.id]));
    this.apply.disabled = false;
  }
}
