// Where the time of the windows that are shown went.

import { fill, h } from "../dom.js";
import { count, plural, share, three } from "../figures/format.js";
import { Bar } from "../figures/meter.js";
import { Table, write } from "../figures/table.js";
import { micro } from "./details.js";
import { PHASES, summary } from "./model.js";

export class Summary {
  constructor() {
    this.of = h("span.quiet");
    this.line = h("p.detail");
    this.bar = new Bar(PHASES.map((phase) => `var(${phase.colour})`), "thick");
    this.table = new Table({
      name: "Time by phase", most: PHASES.length, empty: "No windows are shown.",
      columns: [
        { title: "Phase", kind: "head", draw: (cell, row) => {
          if (cell.dataset.key === row.key) return;
          cell.dataset.key = row.key;
          fill(cell, h("span.swatch", { style: { background: `var(${row.colour})` } }), row.name);
          cell.title = row.about;
        } },
        { title: "Share", kind: "number", text: (row) => share(row.total, row.whole) },
        { title: "Total", kind: "number", text: (row) => micro(row.total) },
        { title: "Times", kind: "number", text: (row) => count(row.count) },
        { title: "Median", kind: "number", text: (row) => micro(row.middle) },
        { title: "Longest", kind: "number", text: (row) => micro(row.longest) },
      ],
    });
    this.element = h("section.card", { "aria-label": "Where the time went" }, h("h2", {}, "Where the time went ", this.of), this.bar.element, this.table.element, this.line);
  }

  update(shown, all) {
    const told = summary(shown);
    write(this.of, shown.length === all ? "" : `of ${count(shown.length)} of ${count(all)} shown`);
    this.bar.update(told.phases.map((one) => one.total / told.total));
    this.table.update(told.total ? told.phases.map((one) => ({ ...one, whole: told.total })) : []);
    const parts = [];
    if (told.windows) parts.push(`${plural(told.windows, "window")} with ${plural(told.tokens, "token")}, ${three(told.tokens / told.windows)} each`);
    if (told.passes) parts.push(`${plural(told.passes, "pass", "passes")} over ${plural(told.read, "token")} of prompts`);
    if (told.guessed) parts.push(`${share(told.accepted, told.guessed)} of ${plural(told.guessed, "guess", "guesses")} right`);
    write(this.line, parts.join(" · "));
  }
}
