// Conversations that are kept, so that whoever goes on from one reads only what is new.

import { fill, h } from "../dom.js";
import { ago, bytes, count, plural, share } from "../figures/format.js";
import { Bar } from "../figures/meter.js";
import { Table, write } from "../figures/table.js";

function place(cell, row) {
  if (!cell.bar) {
    cell.bar = new Bar(["var(--data-1)", "var(--data-3)"]);
    cell.text = h("span");
    fill(cell, h("div.reading", {}, h("div.track", {}, cell.bar.element), cell.text));
  }
  const { tokens, in_memory: memory, on_disk: disk } = row;
  cell.bar.update([memory / tokens, (tokens - memory) / tokens]);
  write(cell.text, memory === 0 ? "in files" : memory < tokens ? `${share(memory, tokens)} in memory, the rest in files`
    : disk === tokens ? "in memory, saved" : "in memory");
}

export class Kept {
  constructor() {
    this.figures = h("dl.strip");
    this.table = new Table({
      name: "Conversations that are kept", most: 8,
      empty: "No conversation is kept yet. After an answer its conversation stays here, and the next turn reads only what is new.",
      columns: [
        { title: "Used", kind: "head", text: (row) => (row.age === null ? "before start" : row.age < 1 ? "now" : `${ago(row.age)} ago`) },
        { title: "Tokens", kind: "number", text: (row) => count(row.tokens) },
        { title: "Shared", kind: "number", text: (row) => count(row.shared) },
        { title: "Where", draw: place },
        { title: "Memory", kind: "number", text: (row) => bytes(row.ram_bytes) },
      ],
    });
    this.more = h("p.detail");
    this.element = h("section.card", { "aria-label": "Conversations" }, h("h2", {}, "Conversations kept"), this.figures, this.table.element, this.more);
  }

  update({ cache }) {
    const { conversations, kept, hits, misses, cached_tokens: cached, prompt_tokens: prompt, evicted, refused } = cache;
    fill(this.figures, [
      ["Prompt tokens cached", share(cached, prompt), `${count(cached)} of ${count(prompt)}`],
      ["Prompts continued", share(hits, hits + misses), `${count(hits)} of ${count(hits + misses)}`],
      ["Kept", count(conversations), plural(cache.checkpoints, "checkpoint")],
    ].map(([name, value, detail]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("span.strong", {}, value), h("span.quiet", {}, detail)))));
    this.table.update(kept);
    const parts = [];
    if (conversations > kept.length) parts.push(`The ${kept.length} used last of ${count(conversations)}`);
    if (evicted) parts.push(`${plural(evicted, "checkpoint")} given up for want of room`);
    if (refused) parts.push(`${plural(refused, "stored part")} could not be used`);
    write(this.more, parts.join(" · "));
  }
}
