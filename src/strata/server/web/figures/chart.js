// A line over the last minutes. SVG in the size it has on the screen, drawn again with every snapshot.

import { fill, h, s } from "../dom.js";

const HEIGHT = 112;
const TOP = 14;      // room for the highest label
const BOTTOM = 18;   // and for the times
const RIGHT = 42;    // for the numbers of the scale
const GAP = 3;       // seconds without a point: the line is interrupted
const SPANS = [60, 120, 300];  // seconds that are shown: as many as there are points for

/** The least of 1, 2, 5, 10, 20, 50, ... that is at least so much. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

export class TimeChart {
  /**
   * @param {object} options
   * @param {string} options.label  what is shown
   * @param {string[]} options.colours  of its lines, the first with the area below it
   * @param {number} [options.least]  the scale's end is at least so high
   * @param {(values: number[]) => string} options.say  a point in words
   * @param {(value: number) => string} options.tick  a number of the scale
   */
  constructor({ label, colours, least = 1, say, tick }) {
    Object.assign(this, { label, span: SPANS[0], least, say, tick, points: [], now: 0, end: least, low: 0, width: 0, picked: null });
    this.grid = s("g", { class: "grid" });
    this.area = s("path", { class: "area", fill: colours[0] });
    this.lines = colours.map((colour) => s("path", { class: "line", stroke: colour }));
    this.cross = s("g", { class: "cross" });
    this.svg = s("svg", { class: "chart", height: HEIGHT, "aria-hidden": "true" }, this.grid, this.area, this.lines, this.cross);
    this.tip = h("div.tip", { hidden: true, "aria-hidden": "true" });
    this.spoken = h("span.unseen", { role: "status" });
    this.plot = h("div.plot", { tabindex: "0", role: "img", "aria-label": label }, this.svg);
    this.element = h("div.plot-place", {}, this.plot, this.tip, this.spoken);
    this.plot.addEventListener("pointermove", (event) => this.pick(this.nearest(event.clientX - this.plot.getBoundingClientRect().left)));
    this.plot.addEventListener("pointerleave", () => this.pick(null));
    this.plot.addEventListener("blur", () => this.pick(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.draw();
    }).observe(this.plot);
  }

  /** @param {Array<{t: number, values: number[]}>} points oldest first, t in seconds */
  update(points, now) {
    this.span = SPANS.find((span) => !points.length || points[0].t >= now - span) ?? SPANS.at(-1);
    this.points = points.filter((point) => point.t >= now - this.span);
    this.now = now;
    const highest = Math.max(0, ...this.points.flatMap((point) => point.values));
    const wanted = nice(Math.max(this.least, highest));
    // the scale grows at once and shrinks only after a while, so that it does not flicker
    this.low = wanted < this.end ? this.low + 1 : 0;
    if (wanted > this.end || this.low > 10) this.end = wanted;
    const last = this.points.at(-1);
    const words = last ? `${this.say(last.values)}, at most ${this.tick(highest)}` : "nothing yet";
    this.plot.setAttribute("aria-label", `${this.label} in the last ${this.past}: ${words}. Arrow keys read the points.`);
    this.draw();
  }

  get past() {
    return this.span === 60 ? "minute" : `${this.span / 60} minutes`;
  }

  x(t) {
    return (this.width - RIGHT) * (1 - (this.now - t) / this.span);
  }

  y(value) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(1, value / this.end));
  }

  draw() {
    if (!this.width) return;
    this.svg.setAttribute("width", this.width);
    const middle = this.end / 2;
    fill(this.grid,
      [0, middle, this.end].map((value) => s("line", { x1: 0, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) })),
      [0, middle, this.end].map((value) => s("text", { x: this.width, y: this.y(value) + 4, class: "end" }, this.tick(value))),
      s("text", { x: 0, y: HEIGHT - 3 }, `${this.span / 60} min ago`),
      s("text", { x: this.width - RIGHT, y: HEIGHT - 3, class: "end" }, "now"));
    this.lines.forEach((line, i) => line.setAttribute("d", this.path(i)));
    this.area.setAttribute("d", this.path(0, true));
    this.mark();
  }

  path(index, closed = false) {
    const parts = [];
    let piece = [];
    const flush = () => {
      if (piece.length > 1) {
        const line = piece.map((point, i) => `${i ? "L" : "M"}${this.x(point.t).toFixed(1)} ${this.y(point.values[index]).toFixed(1)}`).join("");
        const base = this.y(0).toFixed(1);
        parts.push(closed ? `${line}L${this.x(piece.at(-1).t).toFixed(1)} ${base}L${this.x(piece[0].t).toFixed(1)} ${base}Z` : line);
      }
      piece = [];
    };
    for (const point of this.points) {
      if (piece.length && point.t - piece.at(-1).t > GAP) flush();
      piece.push(point);
    }
    flush();
    return parts.join("");
  }

  nearest(x) {
    if (!this.points.length) return null;
    return this.points.reduce((best, point) => (Math.abs(this.x(point.t) - x) < Math.abs(this.x(best.t) - x) ? point : best));
  }

  pick(point) {
    this.picked = point;
    this.mark();
  }

  /** The picked point: a line through it, and its numbers. */
  mark() {
    const point = this.picked;
    const inside = point && this.x(point.t) >= 0;
    this.tip.hidden = !inside;
    fill(this.cross);
    if (!inside) return;
    const x = this.x(point.t);
    this.cross.append(s("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      ...point.values.map((value) => s("circle", { cx: x, cy: this.y(value), r: 3 })));
    fill(this.tip, this.words(point));
    this.tip.style.setProperty("left", `${Math.max(0, Math.min(this.width - this.tip.offsetWidth, x - this.tip.offsetWidth / 2))}px`);
  }

  words(point) {
    const past = Math.round(this.now - point.t);
    return `${this.say(point.values)}${past > 0 ? `, ${past} s ago` : ""}`;
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.pick(null);
    if (!(event.key in steps) || !this.points.length) return;
    event.preventDefault();
    const from = this.picked ? this.points.indexOf(this.picked) : this.points.length;
    const to = Math.max(0, Math.min(this.points.length - 1, from + steps[event.key]));
    this.pick(this.points[to]);
    fill(this.spoken, this.words(this.points[to]));
  }
}
