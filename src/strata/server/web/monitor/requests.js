// Requests under way, with how far their prompts are; and those that are over.

import { fill, h } from "../dom.js";
import { NONE, brief, clock, count, seconds, share, three } from "../figures/format.js";
import { Bar } from "../figures/meter.js";
import { Table, write } from "../figures/table.js";

const short = (id) => id.replace(/^req_/, "").slice(0, 8);

function idColumn() {
  return { title: "Request", kind: "head id", text: (row) => short(row.id), hint: (row) => row.id };
}

/** "Waiting", or a bar of what of the prompt was known, has been read, and is left. */
function progress(cell, row) {
  if (!cell.bar) {
    cell.bar = new Bar(["var(--data-6)", "var(--data-2)"]);
    cell.text = h("span");
    cell.track = h("div.track", { role: "progressbar", "aria-valuemin": "0", "aria-label": "Prompt read" }, cell.bar.element);
    fill(cell, h("div.reading", {}, cell.track, cell.text));
  }
  cell.bar.update([row.cached / row.prompt, (row.read - row.cached) / row.prompt]);
  cell.track.setAttribute("aria-valuemax", row.prompt || 1);
  cell.track.setAttribute("aria-valuenow", row.read);
  cell.track.setAttribute("aria-valuetext", `${count(row.read)} of ${count(row.prompt)} tokens, ${count(row.cached)} of them known before`);
  write(cell.text, row.prompt ? `${count(row.read)} of ${count(row.prompt)}` : NONE);
}

function state(cell, row) {
  cell.dataset.state = row.state;
  write(cell, row.state[0].toUpperCase() + row.state.slice(1));
}

export class Underway {
  constructor() {
    this.table = new Table({
      name: "Requests under way", most: 10,
      empty: "Nothing is under way. A request to any of the server's routes appears here while it waits, is read and is answered.",
      columns: [
        idColumn(),
        { title: "Route", text: (row) => row.dialect },
        { title: "State", draw: state },
        { title: "Prompt", draw: progress },
        { title: "Cached", kind: "number", text: (row) => (row.state === "waiting" ? count(null) : share(row.cached, row.prompt)) },
        { title: "Answer", kind: "number", text: (row) => count(row.generated) },
        { title: "Tokens/s", kind: "number", text: (row) => three(row.speed) },
        { title: "First token", kind: "number", text: (row) => brief(row.first) },
        { title: "Time", kind: "number", text: (row) => seconds(row.seconds) },
      ],
    });
    this.element = h("section", {}, h("h2", {}, "Under way"), this.table.element);
  }

  update(snapshot, engine) {
    this.table.update(snapshot.requests.filter((one) => one.model === engine.model));
  }
}

const ENDS = {
  stop: "Complete", length: "Length", cancelled: "Cancelled", timeout: "Timeout", disconnect: "Client left", error: "Error",
};

function end(cell, row) {
  cell.dataset.outcome = row.outcome;
  write(cell, (ENDS[row.outcome] ?? row.outcome) + (row.error ? `: ${row.error.replaceAll("_", " ")}` : ""));
}

export class Recent {
  constructor() {
    this.table = new Table({
      name: "Last requests", most: 12, empty: "No request has ended since the server's start.",
      columns: [
        idColumn(),
        { title: "Ended", text: (row) => clock(row.ended) },
        { title: "Route", text: (row) => row.dialect },
        { title: "End", draw: end },
        { title: "Prompt", kind: "number", text: (row) => count(row.prompt) },
        { title: "Cached", kind: "number", text: (row) => share(row.cached, row.prompt) },
        { title: "Answer", kind: "number", text: (row) => count(row.generated) },
        { title: "Guesses right", kind: "number", text: (row) => share(row.accepted, row.drafted) },
        { title: "Waited", kind: "number", text: (row) => brief(row.waiting) },
        { title: "Read", kind: "number", text: (row) => brief(row.reading) },
        { title: "First token", kind: "number", text: (row) => brief(row.first) },
        { title: "Total", kind: "number", text: (row) => seconds(row.seconds) },
        { title: "Tokens/s", kind: "number", text: (row) => three(row.generated > 1 && row.answering > 0 ? (row.generated - row.answers) / row.answering : null) },
      ],
    });
    this.element = h("section", {}, h("h2", {}, "Last requests"), this.table.element);
  }

  update(snapshot, engine) {
    this.table.update(snapshot.recent.filter((one) => one.model === engine.model));
  }
}
