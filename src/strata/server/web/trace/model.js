// Windows and passes out of a trace in Chrome's format, as the engine writes it (src/strata/engine/trace.py).

/** Rows of the timeline, in the order of a window. */
export const PHASES = [
  { key: "wait", name: "Wait", colour: "--data-6", about: "between two windows while there is work: messages, keeping conversations, other programs" },
  { key: "read", name: "Read", colour: "--data-2", about: "a pass over a prompt" },
  { key: "draft", name: "Draft", colour: "--data-4", about: "guessing tokens ahead" },
  { key: "run", name: "Run", colour: "--data-1", about: "the model's layers and the logits; closer, every second layer is lighter" },
  { key: "verify", name: "Verify", colour: "--data-3", about: "choosing tokens and comparing guesses" },
  { key: "commit", name: "Commit", colour: "--data-5", about: "accepting rows into the state" },
];

const KINDS = { "window": "Window", "prompt pass": "Prompt pass" };

/**
 * @typedef {object} Window
 * @property {number} number  from 1, the oldest first
 * @property {string} kind  "Window" or "Prompt pass"
 * @property {number} from  microseconds: where its wait begins, or it does
 * @property {number} start
 * @property {number} end
 * @property {Array<{phase: string, start: number, end: number}>} parts
 * @property {Object<string, number>} times  microseconds by phase
 * @property {number[]} layers  microseconds from the beginning of "run" to that of each layer, and to the end of the
 *   last; none where the device does not say it
 */

/** @returns {Window[]} */
export function windowsOf(document) {
  const found = [];
  let wait = null;
  for (const event of document.traceEvents) {
    if (event.ph !== "X") continue;
    const part = { phase: event.name, start: event.ts, end: event.ts + event.dur };
    if (event.name === "wait") {
      wait = part;
    } else if (event.name in KINDS) {
      const { rows, conversations, tokens = 0, accepted, drafted = {}, hits = {}, layers = [] } = event.args;
      const sources = Object.keys(drafted);
      found.push({
        number: found.length + 1, kind: KINDS[event.name], from: wait ? wait.start : part.start, start: part.start, end: part.end,
        parts: wait ? [wait] : [], times: wait ? { wait: wait.end - wait.start } : {},
        rows, conversations, tokens, accepted, hits, layers, sources, guessed: sources.reduce((sum, source) => sum + drafted[source], 0),
      });
      wait = null;
    } else if (found.length) {
      found.at(-1).parts.push(part);
      found.at(-1).times[event.name] = (found.at(-1).times[event.name] ?? 0) + event.dur;
    }
  }
  return found;
}

/** What windows took together, by phase. */
export function summary(windows) {
  const phases = PHASES.map((phase) => {
    const times = windows.map((one) => one.times[phase.key] ?? 0).filter((time) => time > 0).sort((a, b) => a - b);
    const total = times.reduce((sum, time) => sum + time, 0);
    return { ...phase, total, count: times.length, middle: times[Math.floor(times.length / 2)] ?? null, longest: times.at(-1) ?? null };
  });
  const sum = (key) => windows.reduce((total, one) => total + one[key], 0);
  const decoding = windows.filter((one) => one.kind === "Window");
  return {
    phases, total: phases.reduce((total, one) => total + one.total, 0),
    windows: decoding.length, passes: windows.length - decoding.length, guessed: sum("guessed"), accepted: sum("accepted"),
    read: windows.filter((one) => one.kind !== "Window").reduce((total, one) => total + one.rows, 0),
    tokens: decoding.reduce((total, one) => total + one.tokens, 0),
  };
}

/** What each layer took, in microseconds; empty where that is not known. */
export function layersOf(one) {
  return one.layers.slice(1).map((end, i) => end - one.layers[i]);
}

/** The layer that was computed at a time, from 0; null outside of all. */
export function layerAt(one, time) {
  const run = one.parts.find((part) => part.phase === "run");
  if (!run || !one.layers.length) return null;
  const after = one.layers.findIndex((from) => run.start + from > time);
  return after > 0 ? after - 1 : null;
}

/** The middle of what each layer took in these windows. */
export function middles(windows) {
  const known = windows.filter((one) => one.layers.length).map(layersOf);
  if (!known.length) return [];
  return known[0].map((_, layer) => {
    const times = known.map((one) => one[layer]).filter((time) => time !== undefined).sort((a, b) => a - b);
    return times[Math.floor(times.length / 2)];
  });
}
