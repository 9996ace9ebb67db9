// Draws a timeline on a canvas: rows of phases, the time above them, and an overview of everything below.

import { seconds } from "../figures/format.js";
import { PHASES } from "./model.js";

export const AXIS = 24;
export const ROW = 28;
export const OVERVIEW = 30;
export const HEIGHT = AXIS + ROW * PHASES.length + 10 + OVERVIEW;

const ROW_OF = new Map(PHASES.map((phase, i) => [phase.key, i]));
const NAMES = ["--ink", "--ink-2", "--ink-3", "--line", "--sunken", "--hover", "--accent", "--accent-soft", "--ground", "--raised", ...PHASES.map((one) => one.colour)];

/** The theme's colours as a canvas understands them. */
export function colours(element) {
  const probe = document.createElement("span");
  element.append(probe);
  const found = {};
  for (const name of NAMES) {
    probe.style.color = `var(${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

/** Draw. `view` is {from, to} of the axis' places; `chosen` and `hovered` are windows. */
export function paint(canvas, { windows, axis, view, chosen, hovered, palette, width }) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  const x = (place) => ((place - view.from) / (view.to - view.from)) * width;
  x.of = (time) => x(axis.place(time));
  for (const one of [chosen, hovered]) if (one) band(c, x(axis.place(one.from)), x(axis.place(one.end)), palette[one === chosen ? "--accent-soft" : "--hover"]);
  times(c, view, width, x, palette);
  PHASES.forEach((_, i) => rule(c, AXIS + ROW * (i + 1), width, palette["--line"]));
  for (const piece of axis.idle) idle(c, piece, x, width, palette);
  for (const one of visible(windows, axis, view)) {
    for (const part of one.parts) {
      const row = ROW_OF.get(part.phase);
      if (row === undefined) continue;
      const left = x(axis.place(part.start));
      const size = Math.max(1, x(axis.place(part.end)) - left);
      if (left + size < 0 || left > width) continue;
      c.fillStyle = palette[PHASES[row].colour];
      const gap = size > 4 ? 0.5 : 0;
      box(c, left + gap, AXIS + ROW * row + 4, size - 2 * gap, ROW - 8, size > 8 ? 3 : 0);
      const layered = part.phase === "run" && layers(c, one, part, x, AXIS + ROW * row + 4, width, palette);
      if (size > 36 && !layered) note(c, one, part, left, size, AXIS + ROW * row + ROW / 2, width, palette);
    }
  }
  if (chosen) outline(c, x(axis.place(chosen.from)), x(axis.place(chosen.end)), palette["--accent"]);
  overview(c, { windows, axis, view, width, palette, chosen });
}

/** Windows that are on the screen; they are in order. */
export function visible(windows, axis, view) {
  return windows.filter((one) => axis.place(one.end) >= view.from && axis.place(one.from) <= view.to);
}

function band(c, left, right, colour) {
  c.fillStyle = colour;
  c.fillRect(left, AXIS, Math.max(2, right - left), ROW * PHASES.length);
}

function outline(c, left, right, colour) {
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.strokeRect(left - 0.75, AXIS + 0.75, Math.max(2, right - left) + 1.5, ROW * PHASES.length - 1.5);
}

function rule(c, y, width, colour) {
  c.fillStyle = colour;
  c.fillRect(0, y - 1, width, 1);
}

function box(c, x, y, width, height, radius) {
  if (!radius) {
    c.fillRect(x, y, width, height);
    return;
  }
  c.beginPath();
  c.roundRect(x, y, width, height, radius);
  c.fill();
}

/** Every second layer a little lighter, where they are wide enough to be told apart; says whether it drew any. */
function layers(c, one, part, x, y, width, palette) {
  const count = one.layers.length - 1;
  const place = (i) => x.of(part.start + one.layers[i]);
  if (count < 1 || (place(count) - place(0)) / count < 4) return false;
  c.textAlign = "center";
  c.textBaseline = "middle";
  for (let i = 0; i < count; i += 1) {
    const left = place(i);
    const size = place(i + 1) - left;
    if (left + size < 0 || left > width) continue;
    c.fillStyle = palette["--raised"];
    c.globalAlpha = i % 2 ? 0.22 : 0;
    c.fillRect(left, y, size, ROW - 8);
    c.globalAlpha = 1;
    if (size > 8 + c.measureText(i).width && left > 0 && left + size < width) c.fillText(i, left + size / 2, y + ROW / 2 - 4);
  }
  return true;
}

/** A number inside a part that is wide enough for it. */
function note(c, one, part, left, size, y, width, palette) {
  const text = { read: `${one.rows} tokens`, run: one.conversations > 1 ? `${one.rows} rows of ${one.conversations}` : `${one.rows} ${one.rows === 1 ? "row" : "rows"}`, draft: `${one.guessed}`, commit: `+${one.tokens}` }[part.phase] ?? "";
  const start = Math.max(left, 0) + 6;
  if (!text || c.measureText(text).width + 12 > Math.min(left + size, width) - Math.max(left, 0)) return;
  c.fillStyle = palette["--raised"];
  c.textBaseline = "middle";
  c.textAlign = "left";
  c.fillText(text, start, y);
}

function times(c, view, width, x, palette) {
  const step = niceStep(((view.to - view.from) / width) * 90);
  c.textBaseline = "middle";
  c.textAlign = "left";
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const left = Math.round(x(at));
    c.fillStyle = palette["--line"];
    c.fillRect(left, 4, 1, AXIS + ROW * PHASES.length - 4);
    c.fillStyle = palette["--ink-3"];
    const text = tick(at);
    if (left + 6 + c.measureText(text).width < width) c.fillText(text, left + 5, AXIS / 2);
  }
}

/** A round time: 20 ms, 1.5 s. */
function tick(at) {
  const [unit, name] = [[1e6, "s"], [1e3, "ms"], [1, "µs"]].find(([one]) => at >= one) ?? [1, "µs"];
  return at === 0 ? "0" : `${Number((at / unit).toPrecision(7))} ${name}`;
}

export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least);
}

/** Nothing to do for a while: a hatched stretch that is shorter than it was. */
function idle(c, piece, x, width, palette) {
  const left = x(piece.d);
  const right = x(piece.d + piece.length);
  if (right < 0 || left > width) return;
  c.save();
  c.beginPath();
  c.rect(left, AXIS, right - left, ROW * PHASES.length);
  c.clip();
  c.fillStyle = palette["--sunken"];
  c.fillRect(left, AXIS, right - left, ROW * PHASES.length);
  c.strokeStyle = palette["--line"];
  c.lineWidth = 1;
  for (let at = left - ROW * PHASES.length; at < right; at += 8) {
    c.beginPath();
    c.moveTo(at, AXIS + ROW * PHASES.length);
    c.lineTo(at + ROW * PHASES.length, AXIS);
    c.stroke();
  }
  const text = `idle ${seconds((piece.to - piece.t) / 1e6)}`;
  if (right - left > c.measureText(text).width + 8) {
    c.fillStyle = palette["--sunken"];
    c.fillRect((left + right) / 2 - c.measureText(text).width / 2 - 4, AXIS + 6, c.measureText(text).width + 8, 16);
    c.fillStyle = palette["--ink-2"];
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(text, (left + right) / 2, AXIS + 14);
  }
  c.restore();
}

/** Everything in little: how long each window's longest phase is, and what of it is shown above. */
function overview(c, { windows, axis, view, width, palette, chosen }) {
  const top = HEIGHT - OVERVIEW;
  c.fillStyle = palette["--sunken"];
  box(c, 0, top, width, OVERVIEW, 6);
  const x = (place) => (place / axis.total) * width;
  for (const one of windows) {
    const phase = one.kind === "Window" ? "run" : "read";
    c.fillStyle = palette[PHASES[ROW_OF.get(phase)].colour];
    const left = x(axis.place(one.start));
    c.fillRect(left, top + 8, Math.max(0.7, x(axis.place(one.end)) - left - 0.2), OVERVIEW - 16);
  }
  const left = x(view.from);
  const right = x(view.to);
  if (chosen) {
    c.fillStyle = palette["--ink"];
    c.fillRect(x(axis.place(chosen.start)) - 0.75, top + 3, 1.5, OVERVIEW - 6);
  }
  if (right - left > width - 1) return;
  c.globalAlpha = 0.6;
  c.fillStyle = palette["--ground"];
  c.fillRect(0, top, left, OVERVIEW);
  c.fillRect(right, top, width - right, OVERVIEW);
  c.globalAlpha = 1;
  c.strokeStyle = palette["--ink-2"];
  c.lineWidth = 1.5;
  c.beginPath();
  c.roundRect(left + 0.75, top + 0.75, Math.max(3, right - left - 1.5), OVERVIEW - 1.5, 4);
  c.stroke();
}
