// One window in words and numbers.

import { fill, h } from "../dom.js";
import { plural, seconds, share } from "../figures/format.js";
import { PHASES, layersOf } from "./model.js";

const SOURCES = { head: "the draft head", lookup: "the text so far", grammar: "the grammar" };

export const micro = (value) => (value === null || value === undefined ? "–" : seconds(value / 1e6));

/** A line: what it was and what came of it. */
export function title(one) {
  return `${one.kind} ${one.number}`;
}

export function words(one) {
  const parts = [];
  if (one.kind === "Window") {
    parts.push(one.conversations > 1 ? `${plural(one.rows, "row")} of ${plural(one.conversations, "conversation")}` : plural(one.rows, "row"));
    parts.push(`${plural(one.tokens, "token")} chosen`);
    if (one.guessed) parts.push(`${one.accepted} of ${plural(one.guessed, "guess", "guesses")} from ${one.sources.map((name) => SOURCES[name] ?? name).join(", ")} right`);
  } else {
    parts.push(`${plural(one.rows, "token")} of a prompt read`);
    if (one.tokens) parts.push("the first token chosen");
  }
  const layers = layersOf(one);
  if (layers.length) {
    const most = Math.max(...layers);
    parts.push(`${plural(layers.length, "layer")}, the slowest ${layers.indexOf(most)} with ${micro(most)}`);
  }
  const tiers = Object.entries(one.hits);
  if (tiers.length) parts.push(`experts found: ${tiers.map(([tier, count]) => `${count} in ${tier}`).join(", ")}`);
  return parts.join(", ");
}

/** All of it as one sentence, for those who hear it. */
export function spoken(one) {
  const times = PHASES.filter((phase) => one.times[phase.key]).map((phase) => `${phase.name.toLowerCase()} ${micro(one.times[phase.key])}`);
  return `${title(one)}, ${micro(one.end - one.start)}: ${words(one)}. ${times.join(", ")}.`;
}

/** The panel below the timeline; it keeps its height whatever it shows. */
export class Details {
  constructor() {
    this.text = h("div.about");
    this.phases = h("dl.phases");
    this.voice = h("p.unseen", { role: "status" });
    this.element = h("section.details", { "aria-label": "Chosen window" }, this.text, this.phases, this.voice);
    this.show(null);
  }

  show(one, { aloud = false } = {}) {
    if (!one) {
      fill(this.text, h("p.quiet", {}, "Choose a window to see what it did."));
      fill(this.phases);
      return;
    }
    const whole = one.end - one.from;
    fill(this.text, h("p.strong", {}, title(one), h("span.quiet", {}, ` ${micro(one.end - one.start)}`)), h("p.small", {}, words(one)));
    fill(this.phases, PHASES.filter((phase) => one.times[phase.key]).map((phase) => h("div", {},
      h("dt", {}, h("span.swatch", { style: { background: `var(${phase.colour})` } }), phase.name),
      h("dd", {}, micro(one.times[phase.key]), h("span.quiet", {}, ` ${share(one.times[phase.key], whole)}`)))));
    if (aloud) fill(this.voice, spoken(one));
  }
}
