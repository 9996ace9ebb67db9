// Where the experts that windows visited were found.

import { fill, h } from "../dom.js";
import { count, share } from "../figures/format.js";
import { Bar } from "../figures/meter.js";

const TIERS = [["vram", "GPU memory", "var(--data-1)"], ["ram", "Main memory", "var(--data-3)"], ["ssd", "File", "var(--data-2)"]];

export class Experts {
  constructor() {
    this.bar = new Bar(TIERS.map(([, , colour]) => colour), "thick");
    this.list = h("dl.pairs");
    this.empty = h("p.nothing");
    this.element = h("section.card", { "aria-label": "Experts by tier" }, h("h2", {}, "Experts by tier"), this.empty, this.bar.element, this.list);
  }

  update({ experts, device }) {
    this.empty.hidden = experts.tiers;
    this.bar.element.hidden = this.list.hidden = !experts.tiers;
    fill(this.empty, device.startsWith("cuda") ? "All experts lie in the GPU's memory. Where they lie in several places, this counts where each was found."
      : "All experts lie in main memory. Where they lie in several places, this counts where each was found.");
    const all = experts.vram + experts.ram + experts.ssd;
    this.bar.update(TIERS.map(([key]) => experts[key] / all));
    fill(this.list, TIERS.map(([key, name, colour]) => [
      h("dt", {}, h("span.swatch", { style: { background: colour } }), name),
      h("dd", {}, h("span.strong", {}, share(experts[key], all)), ` ${count(experts[key])}`)]));
  }
}
