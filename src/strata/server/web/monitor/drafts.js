// How many of the guessed tokens were right, by their place behind the newest token.

import { fill, h } from "../dom.js";
import { count, share, three } from "../figures/format.js";
import { write } from "../figures/table.js";

const SOURCES = { head: "Draft head", lookup: "Text so far", grammar: "Grammar" };

export class Drafts {
  constructor() {
    this.bars = [];
    this.chart = h("ol.depths", { "aria-label": "Guesses that were right, by place" });
    this.sources = h("dl.pairs");
    this.summary = h("p.detail");
    this.empty = h("p.nothing", {}, "Nothing has been guessed yet. Guesses are made while a single answer is under way.");
    this.legend = h("p.detail", {}, "How many were right, by place behind the newest token; below, how many were made.");
    this.element = h("section.card", { "aria-label": "Guesses" }, h("h2", {}, "Guesses by depth"), this.empty, this.legend, this.chart, this.summary, this.sources);
  }

  update({ drafts, speed }) {
    const { depths, sources, windows } = drafts;
    const some = depths.some((one) => one.offered > 0);
    this.empty.hidden = some;
    for (const part of [this.legend, this.chart, this.summary, this.sources]) part.hidden = !some;
    if (!some) return;
    while (this.bars.length < depths.length) this.bars.push(this.bar(this.bars.length + 1));
    depths.forEach((one, i) => {
      const { fillBar, share: text, offered } = this.bars[i];
      fillBar.style.setProperty("height", `${one.offered ? (100 * one.accepted) / one.offered : 0}%`);
      write(text, share(one.accepted, one.offered));
      write(offered, count(one.offered));
    });
    const guessed = depths.reduce((sum, one) => sum + one.offered, 0);
    const right = depths.reduce((sum, one) => sum + one.accepted, 0);
    write(this.summary, `${count(right)} of ${count(guessed)} guesses were right, ${three(windows ? speed.answered_tokens / windows : null)} tokens a window`);
    const rows = Object.entries(sources).map(([name, one]) => [
      h("dt", {}, SOURCES[name] ?? name), h("dd", {}, `${share(one.accepted, one.offered)} of ${count(one.offered)}`)]);
    fill(this.sources, rows);
  }

  bar(place) {
    const parts = { fillBar: h("span.fill"), share: h("span.share"), offered: h("span.offered") };
    this.chart.append(h("li", {}, h("span.unseen", {}, `Place ${place}: `), parts.share, h("span.pillar", { "aria-hidden": "true" }, parts.fillBar),
      h("span.place", { "aria-hidden": "true" }, place), h("span.unseen", {}, " right of "), parts.offered, h("span.unseen", {}, " guesses")));
    return parts;
  }
}
