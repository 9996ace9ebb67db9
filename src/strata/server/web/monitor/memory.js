// Memory and processors: how much of what there is.

import { fill, h } from "../dom.js";
import { bytes, count, three } from "../figures/format.js";
import { Bar } from "../figures/meter.js";
import { write } from "../figures/table.js";

/** A name, a bar, and the numbers. */
class Gauge {
  constructor() {
    this.name = h("span.name");
    this.numbers = h("span.numbers");
    this.bar = new Bar(["var(--data-1)", "var(--data-6)"]);
    this.element = h("li.gauge", {}, this.name, this.numbers, this.bar.element);
  }

  update({ name, used, other = 0, total, text, scarce = false }) {
    write(this.name, name);
    write(this.numbers, text ?? `${bytes(used)} of ${bytes(total)}`);
    this.bar.update(total ? [used / total, other / total] : []);
    this.bar.element.classList.toggle("full", scarce && total > 0 && used / total > 0.92);
    this.bar.element.hidden = !total;
  }
}

function gauges(snapshot, engine) {
  const { ram, processes } = snapshot;
  const { cache } = engine;
  const found = [];
  for (const pool of engine.memory) {
    found.push({
      name: pool.name, used: pool.taken, other: pool.total - pool.free - pool.taken, total: pool.total,
      text: `${bytes(pool.taken)} of ${bytes(pool.total)}, ${bytes(pool.free)} free`,
    });
  }
  if (engine.slots) {
    const { count: room, held, experts, bytes: size } = engine.slots;
    found.push({
      name: "Room for experts on the GPU", used: held, other: room - held, total: experts,
      text: `${bytes(size)}: ${count(room)} of ${count(experts)} experts, ${count(held)} there`,
    });
  }
  const limit = ram.limit ?? ram.total;
  const used = Math.max(0, limit - ram.available);
  found.push({ name: ram.limit === null ? "Main memory" : "Main memory of the container", used, total: limit, scarce: true });
  const mine = processes.find((one) => one.kind === "engine" && one.name === engine.model);
  for (const [name, one] of [["Engine's process", mine], ["Server's process", processes.find((each) => each.kind === "server")]]) {
    found.push({
      name, used: one?.resident ?? 0, total: one ? limit : 0,
      text: one ? `${bytes(one.resident)}, ${one.cpu === null ? "" : `${three(one.cpu)} cores busy`}`.replace(/, $/, "") : "not running",
    });
  }
  found.push({ name: "Conversations in memory", used: cache.ram_bytes, total: cache.ram_limit, text: cache.ram_limit ? undefined : "nothing is kept" });
  found.push({ name: "Conversations in files", used: cache.disk_bytes, total: cache.disk_limit, text: cache.disk_limit ? undefined : "nothing is written" });
  return found;
}

export class Memory {
  constructor() {
    this.gauges = [];
    this.list = h("ul.gauges");
    this.element = h("section.card", { "aria-label": "Memory" }, h("h2", {}, "Memory"), this.list);
  }

  update(snapshot, engine) {
    const found = gauges(snapshot, engine);
    while (this.gauges.length < found.length) this.gauges.push(new Gauge());
    if (this.list.children.length !== found.length) fill(this.list, this.gauges.slice(0, found.length).map((one) => one.element));
    found.forEach((one, i) => this.gauges[i].update(one));
  }
}
