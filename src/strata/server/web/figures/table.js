// A table whose rows change often: cells are written only where they are other ones, and it never becomes shorter than
// it has been, so that nothing below it jumps.

import { fill, h } from "../dom.js";

export class Table {
  /**
   * @param {object} options
   * @param {string} options.name  what it is, for those who do not see where it stands
   * @param {Array<{title: string, text?: (row) => string, draw?: (cell: HTMLElement, row) => void, kind?: string, hint?: (row) => string}>} options.columns
   *   `text` is written into the cell, `draw` does what it wants with it; `kind` is "number", "head", "head id" or none
   * @param {string} options.empty  said where there are no rows
   * @param {number} [options.most]  rows it grows to; more scroll
   */
  constructor({ name, columns, empty, most = 12 }) {
    this.columns = columns;
    this.body = h("tbody");
    this.table = h("table.sheet", {}, h("caption.unseen", {}, name),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.kind ?? "" }, one.title)))), this.body);
    this.note = h("p.nothing", {}, empty);
    this.element = h("div.table", { role: "region", tabindex: "0", "aria-label": name, style: { "--most": most } }, this.table, this.note);
    this.most = most;
    this.seen = 0;
    this.update([]);
  }

  update(rows) {
    this.note.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.seen = Math.max(this.seen, Math.min(rows.length, this.most));
    this.element.style.setProperty("--rows", this.seen);
    while (this.body.rows.length > rows.length) this.body.lastElementChild.remove();
    while (this.body.rows.length < rows.length) {
      this.body.append(h("tr", {}, this.columns.map((one) => (one.kind?.startsWith("head")
        ? h("th", { scope: "row", class: one.kind }) : h("td", { class: one.kind ?? "" })))));
    }
    rows.forEach((row, i) => {
      const { cells } = this.body.rows[i];
      this.columns.forEach((column, j) => {
        if (column.draw) column.draw(cells[j], row);
        else write(cells[j], column.text(row));
        if (column.hint) cells[j].title = column.hint(row);
      });
    });
  }
}

/** Set a text if it is another one. */
export function write(element, text) {
  if (element.textContent !== text) fill(element, text);
}
