// Parts of a whole: a bar of segments, drawn again in place.

import { h } from "../dom.js";

/** A bar of segments; `update` takes the share of each, from 0 to 1. It says nothing: the numbers stand beside it. */
export class Bar {
  constructor(colours, kind = "") {
    this.parts = colours.map((colour) => h("span", { style: { background: colour, width: "0%" } }));
    this.element = h("div.meter", { class: kind, "aria-hidden": "true" }, this.parts);
  }

  update(shares) {
    this.parts.forEach((part, i) => part.style.setProperty("width", `${Math.max(0, Math.min(1, shares[i] || 0)) * 100}%`));
  }
}
