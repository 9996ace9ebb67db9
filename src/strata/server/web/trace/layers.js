// What each layer takes: the middle of the windows that are shown.

import { fill, h } from "../dom.js";
import { plural } from "../figures/format.js";
import { write } from "../figures/table.js";
import { micro } from "./details.js";
import { middles } from "./model.js";

export class Layers {
  constructor() {
    this.list = h("ol.layers", { "aria-label": "Time of each layer" });
    this.line = h("p.detail");
    this.element = h("section.card", { "aria-label": "Time by layer", hidden: true }, h("h2", {}, "Time by layer ", h("span.quiet", {}, "median of what is shown")), this.list, this.line);
  }

  update(shown) {
    const times = middles(shown);
    this.element.hidden = !times.length;
    if (!times.length) return;
    const most = Math.max(...times);
    if (this.list.children.length !== times.length) {
      fill(this.list, times.map((_, i) => h("li", {}, h("span.pillar", { "aria-hidden": "true" }, h("span.fill")), h("span.unseen"),
        h("span.place", { "aria-hidden": "true" }, times.length > 16 && i % 5 ? "" : i))));
    }
    times.forEach((time, i) => {
      const item = this.list.children[i];
      item.title = `Layer ${i}: ${micro(time)}`;
      write(item.querySelector(".unseen"), item.title);
      item.querySelector(".fill").style.setProperty("height", `${(100 * time) / most}%`);
    });
    const sum = times.reduce((total, time) => total + time, 0);
    write(this.line, `${plural(times.length, "layer")}, ${micro(sum)} together; the slowest is ${times.indexOf(most)} with ${micro(most)}`);
  }
}
