// Tokens a second and requests, each with its last minutes.

import { fill, h } from "../dom.js";
import { TimeChart } from "../figures/chart.js";
import { count, round, seconds, three } from "../figures/format.js";
import { write } from "../figures/table.js";

class Tile {
  constructor({ title, unit, colours, which, least, say, big, tick }) {
    Object.assign(this, { which, big });
    this.number = h("span.big");
    this.detail = h("p.detail");
    this.chart = new TimeChart({ label: title, colours, least, say, tick });
    this.element = h("section.card.tile", { "aria-label": title },
      h("div.tile-head", {}, h("h2", {}, title), h("p.figure", {}, this.number, h("span.unit", {}, unit))), this.chart.element, this.detail);
  }

  update(engine, feed, now, detail) {
    write(this.number, this.big(engine));
    write(this.detail, detail);
    this.chart.update(feed.series(engine.model, this.which), now);
  }
}

function swatch(colour, word) {
  return h("span.unit", {}, h("span.swatch", { style: { background: colour } }), word);
}

export class Speeds {
  constructor() {
    this.answers = new Tile({
      title: "Answers", unit: "tokens/s", colours: ["var(--data-1)"], which: [0], least: 10, tick: round,
      big: (engine) => three(engine.speed.answer), say: ([value]) => `${three(value)} tokens/s`,
    });
    this.prompts = new Tile({
      title: "Prompts", unit: "tokens/s", colours: ["var(--data-2)"], which: [1], least: 10, tick: round,
      big: (engine) => three(engine.speed.prompt), say: ([value]) => `${three(value)} tokens/s`,
    });
    this.requests = new Tile({
      title: "Requests", unit: "running", colours: ["var(--data-3)", "var(--data-4)"], which: [2, 3], least: 2, tick: (value) => (Number.isInteger(value) ? count(value) : ""),
      big: (engine) => count(engine.running), say: ([running, waiting]) => `${running} running, ${waiting} waiting`,
    });
    this.element = h("div.tiles", {}, this.answers.element, this.prompts.element, this.requests.element);
    fill(this.requests.element.querySelector(".figure"), this.requests.number, swatch("var(--data-3)", "running"),
      this.waiting = h("span.big.second"), swatch("var(--data-4)", "waiting"));
  }

  update(engine, feed, now) {
    const { speed } = engine;
    const over = (tokens, time, what) => (time > 0 ? `${count(tokens)} tokens ${what} in ${seconds(time)} of work` : `Nothing ${what} yet`);
    this.answers.update(engine, feed, now, over(speed.answered_tokens, speed.answering, "chosen"));
    this.prompts.update(engine, feed, now, over(speed.read_tokens, speed.reading, "read"));
    const most = engine.conversations === null ? "" : `At most ${count(engine.conversations)} at once and ${count(engine.queue)} waiting. `;
    this.requests.update(engine, feed, now, `${most}${count(engine.finished)} ended well, ${count(engine.failed)} failed`);
    write(this.waiting, count(engine.waiting));
  }
}
