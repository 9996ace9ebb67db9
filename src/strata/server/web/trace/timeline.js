// The timeline: what is shown of it, and how one moves about it by mouse, wheel, touch and keyboard.

import { h } from "../dom.js";
import { Axis } from "./axis.js";
import { PHASES } from "./model.js";
import { AXIS, HEIGHT, OVERVIEW, ROW, colours, paint, visible } from "./paint.js";

/** Microseconds that fill the screen at most. */
const CLOSEST = 100;

/** Dispatches "view" when other windows are shown, "choose" when another one is chosen, and "hover". */
export class Timeline extends EventTarget {
  windows = [];
  axis = new Axis([]);
  view = { from: 0, to: 1 };
  chosen = null;
  hovered = null;
  #width = 0;
  #palette = null;
  #frame = 0;
  #fingers = new Map();
  #moved = 0;
  #brush = false;

  constructor() {
    super();
    this.canvas = h("canvas", { "aria-hidden": "true", style: { height: `${HEIGHT}px` } });
    this.stage = h("div.stage", {
      tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": "Timeline of windows",
      "aria-describedby": "trace-keys",
    }, this.canvas);
    this.element = h("div.timeline", {},
      h("ul.rows", { "aria-hidden": "true", style: { "padding-top": `${AXIS}px` } },
        PHASES.map((phase) => h("li", { title: phase.about, style: { height: `${ROW}px` } },
          h("span.swatch", { style: { background: `var(${phase.colour})` } }), phase.name))),
      this.stage);
    const on = (name, listener, options) => this.stage.addEventListener(name, listener, options);
    on("wheel", (event) => this.#wheel(event), { passive: false });
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", (event) => this.#fingers.delete(event.pointerId));
    on("pointerleave", () => this.#hover(null));
    on("dblclick", () => this.fit());
    on("keydown", (event) => this.#key(event));
    on("focus", () => { if (!this.chosen && this.windows.length) this.choose(this.windows.at(-1), { quiet: true }); });
    addEventListener("themechange", () => { this.#palette = null; this.draw(); });
    new ResizeObserver(([entry]) => {
      this.#width = Math.floor(entry.contentRect.width);
      this.draw();
    }).observe(this.stage);
  }

  /** Show other windows; what is shown stays as it is if `follow` is not wanted and it can. */
  set(windows, { keep = false } = {}) {
    const whole = this.view.from <= 0 && this.view.to >= this.axis.total;
    const atEnd = this.view.to >= this.axis.total * 0.999;
    const length = this.view.to - this.view.from;
    const start = this.chosen?.start;
    this.windows = windows;
    this.axis = new Axis(windows);
    this.chosen = windows.find((one) => one.start === start) ?? null;
    this.hovered = null;
    if (!keep || whole) this.view = { from: 0, to: this.axis.total };
    else if (atEnd) this.#show(this.axis.total - length, this.axis.total);
    else this.#show(this.view.from, this.view.from + length);
    this.#changed("view");
    this.#changed("choose");
  }

  get shown() {
    return visible(this.windows, this.axis, this.view);
  }

  get whole() {
    return this.view.from <= 0 && this.view.to >= this.axis.total;
  }

  fit() {
    this.#show(0, this.axis.total);
    this.#changed("view");
  }

  /** Zoom so that a place stays where it is; `factor` below 1 is closer. */
  zoom(factor, place = (this.view.from + this.view.to) / 2) {
    const length = Math.max(CLOSEST, Math.min(this.axis.total, (this.view.to - this.view.from) * factor));
    const share = (place - this.view.from) / (this.view.to - this.view.from);
    this.#show(place - share * length, place + (1 - share) * length);
    this.#changed("view");
  }

  /** Move by a share of what is shown. */
  pan(share) {
    const by = (this.view.to - this.view.from) * share;
    this.#show(this.view.from + by, this.view.to + by);
    this.#changed("view");
  }

  /** Choose a window and bring it into sight. */
  choose(one, { quiet = false } = {}) {
    this.chosen = one;
    if (one) {
      const from = this.axis.place(one.from);
      const to = this.axis.place(one.end);
      const length = this.view.to - this.view.from;
      if (to - from > length) this.#show(from - (to - from) * 0.1, to + (to - from) * 0.1);
      else if (from < this.view.from) this.#show(from - length * 0.1, from + length * 0.9);
      else if (to > this.view.to) this.#show(to - length * 0.9, to + length * 0.1);
    }
    this.#changed("view");
    if (!quiet) this.#changed("choose");
    else this.dispatchEvent(new CustomEvent("choose", { detail: { quiet } }));
  }

  draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      if (!this.#width) return;
      this.#palette ??= colours(this.element);
      paint(this.canvas, { ...this, windows: this.windows, axis: this.axis, view: this.view, palette: this.#palette, width: this.#width });
    });
  }

  #show(from, to) {
    const length = Math.min(to - from, this.axis.total);
    const start = Math.max(0, Math.min(from, this.axis.total - length));
    this.view = { from: start, to: start + length };
  }

  #changed(name) {
    this.draw();
    this.dispatchEvent(new CustomEvent(name, { detail: {} }));
  }

  #place(x) {
    return this.view.from + (x / this.#width) * (this.view.to - this.view.from);
  }

  #at(x) {
    const place = this.#place(x);
    const near = ((this.view.to - this.view.from) / this.#width) * 3;
    return this.windows.find((one) => this.axis.place(one.from) <= place && place <= this.axis.place(one.end))
      ?? this.windows.find((one) => this.axis.place(one.from) - near <= place && place <= this.axis.place(one.end) + near) ?? null;
  }

  #spot(event) {
    const box = this.stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #wheel(event) {
    const focused = document.activeElement === this.stage;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.#width);
    } else if (focused || event.ctrlKey || event.metaKey) {  // else the page scrolls
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 20 : 1;
      this.zoom(Math.exp(Math.max(-0.7, Math.min(0.7, event.deltaY * lines * 0.003))), this.#place(this.#spot(event).x));
    }
  }

  #down(event) {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    const spot = this.#spot(event);
    this.stage.setPointerCapture(event.pointerId);
    this.#fingers.set(event.pointerId, spot);
    this.#brush = this.#fingers.size === 1 && spot.y > HEIGHT - OVERVIEW;
    this.#moved = 0;
    if (this.#brush) this.#centre(spot.x);
  }

  #move(event) {
    const spot = this.#spot(event);
    const before = this.#fingers.get(event.pointerId);
    if (!before) {
      this.#hover(spot.y < HEIGHT - OVERVIEW ? this.#at(spot.x) : null, spot);
      return;
    }
    const others = [...this.#fingers].filter(([id]) => id !== event.pointerId).map(([, one]) => one);
    this.#moved += Math.abs(spot.x - before.x);
    if (this.#brush) {
      this.#centre(spot.x);
    } else if (others.length) {  // two fingers: what is below each stays below it
      const [other] = others;
      const [a, b] = [this.#place(before.x), this.#place(other.x)];
      const length = Math.abs(a - b) / (Math.max(12, Math.abs(spot.x - other.x)) / this.#width);
      const clipped = Math.max(CLOSEST, Math.min(this.axis.total, length));
      const from = b - (other.x / this.#width) * clipped;
      this.#show(from, from + clipped);
      this.#changed("view");
    } else {
      this.pan((before.x - spot.x) / this.#width);
    }
    this.#fingers.set(event.pointerId, spot);
  }

  #up(event) {
    const spot = this.#spot(event);
    const alone = this.#fingers.size === 1;
    this.#fingers.delete(event.pointerId);
    if (alone && !this.#brush && this.#moved < 4) {
      const one = this.#at(spot.x);
      if (one) this.choose(one);
    }
  }

  #centre(x) {
    const half = (this.view.to - this.view.from) / 2;
    const place = (x / this.#width) * this.axis.total;
    this.#show(place - half, place + half);
    this.#changed("view");
  }

  #hover(one, spot = null) {
    if (one !== this.hovered) {
      this.hovered = one;
      this.draw();
    }
    this.dispatchEvent(new CustomEvent("hover", { detail: { one, spot, time: spot && this.axis.time(this.#place(spot.x)) } }));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.windows.length) return;
    const at = this.windows.indexOf(this.chosen);
    const go = (to) => this.choose(this.windows[Math.max(0, Math.min(this.windows.length - 1, to))]);
    const keys = {
      ArrowLeft: () => (event.shiftKey ? this.pan(-0.2) : go(at < 0 ? this.windows.length - 1 : at - 1)),
      ArrowRight: () => (event.shiftKey ? this.pan(0.2) : go(at + 1)),
      PageUp: () => go(at - 10), PageDown: () => go(at + 10), Home: () => go(0), End: () => go(this.windows.length - 1),
      "+": () => this.#closer(0.6), "=": () => this.#closer(0.6), "-": () => this.#closer(1 / 0.6), "0": () => this.fit(),
      Enter: () => this.#closer(0.1),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** Zoom around the chosen window, if it is in sight. */
  #closer(factor) {
    const place = this.chosen ? this.axis.place((this.chosen.from + this.chosen.end) / 2) : null;
    this.zoom(factor, place !== null && place >= this.view.from && place <= this.view.to ? place : undefined);
  }
}
