// Windows and passes out of a trace in Chrome's format, as the engine writes it (src/strata/engine/trace.py).

/** Rows of the timeline, in the order of a window. */
export const PHASES = [
  { key: "wait", name: "Wait", colour: "--data-6", about: "between two windows while there is work: messages, keeping conversations, other programs" },
  { key: "read", name: "Read", colour: "--data-2", about: "a pass over a prompt" },
  { key: "draft", name: "Draft", colour: "--data-4", about: "guessing tokens ahead" },
  { key: "run", name: "Run", colour: "--data-1", about: "the model's layers and the logits" },
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
      const { rows, conversations, tokens = 0, accepted, drafted = {}, hits = {} } = event.args;
      const sources = Object.keys(drafted);
      found.push({
        number: found.length + 1, kind: KINDS[event.name], from: wait ? wait.start : part.start, start: part.start, end: part.end,
        parts: wait ? [wait] : [], times: wait ? { wait: wait.end - wait.start } : {},
        rows, conversations, tokens, accepted, hits, sources, guessed: sources.reduce((sum, source) => sum + drafted[source], 0),
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
