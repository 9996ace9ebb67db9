// A text that is still being written, as elements. Blocks that are complete are made once and never touched again.

import { blocks, nodesOf, render, verbatim } from "./markdown.js";
import { morphChildren } from "./morph.js";

export class Streamed {
  #element;
  #text = "";
  #settled = 0; // characters whose blocks are complete
  #kept = 0; // elements of those
  #timer = 0;
  #cost = 0; // milliseconds that the last rendering took

  /** @param {HTMLElement} element  empty; belongs to this from now on */
  constructor(element, after = () => {}) {
    this.#element = element;
    this.after = after;
  }

  /** The text so far; what it had before must be its beginning. It is shown with the next frame, or a little later. */
  write(text) {
    this.#text = text;
    if (this.#timer) return;
    const pause = Math.min(400, Math.max(30, this.#cost * 4)); // at most a fifth of the time goes into this
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#show(heal);
    }, pause);
  }

  /** Show what was written without waiting. */
  flush() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#show(heal);
  }

  /** The text is complete. */
  end(text = this.#text) {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#text = text;
    if (this.#settled === 0 || /^ {0,3}\[[^\]\n]+\]:/m.test(text)) {
      // in one piece, which is quicker; and a link's address may stand behind its use
      this.#morph(render(normal(text)), 0);
      this.after();
    } else {
      this.#show((tail) => tail);
    }
  }

  /** What is nested more deeply than can be compared is shown as it was written. */
  #morph(nodes, kept) {
    try {
      morphChildren(this.#element, nodes, kept);
    } catch {
      this.#element.replaceChildren(verbatim(this.#text));
    }
  }

  #show(healing) {
    const began = performance.now();
    const tail = normal(this.#text).slice(this.#settled);
    const tokens = blocks(tail);
    // The last block may still grow, and so may the one before it while the last is no more than an item's beginning.
    let last = before(tokens, tokens.length);
    if (last > 0 && ITEM.test(tokens[last].raw)) last = before(tokens, last);
    const done = tokens.slice(0, Math.max(last, 0));
    if (tokens.map((token) => token.raw).join("") !== tail) done.length = 0; // then nothing is said about places
    const complete = done.flatMap((token) => nodesOf([token]));
    const size = done.reduce((sum, token) => sum + token.raw.length, 0);
    const open = nodesOf(blocks(healing(tail.slice(size))));
    this.#morph([...complete, ...open], this.#kept);
    this.#settled += size;
    this.#kept += complete.length;
    this.#cost = performance.now() - began;
    this.after();
  }
}

const ITEM = /^[ \t]*(?:[-+*]|\d{1,9}[.)]?)?[ \t]*$/;

/** The place of the last block before `end` that is not empty lines. */
function before(tokens, end) {
  let place = end - 1;
  while (place > 0 && tokens[place].type === "space") place -= 1;
  return place;
}

function normal(text) {
  return text.replace(/\r\n?/g, "\n");
}

/**
 * The last block as it will most likely look when its line is complete, so that nothing flashes by as something else:
 * markers without a partner get one, and a line that is no more than the beginning of a list, a table, a rule or a
 * heading waits.
 */
export function heal(text) {
  if (/^ {0,3}(?:`{3,}|~{3,})/.test(text)) return text.replace(/\n {0,3}[`~]{1,2}$/, ""); // in code nothing is a marker
  let healed = text.replace(/(^|\n)[ \t]*(?:[-=*_+#>|]+|\d{1,9}[.)]?|`{1,2}|~{1,2})[ \t]*$/, "$1");
  if (/^\|[^\n]*(?:\n[|:\- ]*)?$/.test(healed)) return "";
  healed = healed
    .replace(/!?\[([^\]\n]*)$/, "$1")
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*$/, "$1")
    .replace(/(?<![*_`~])[*_`~]{1,3}$/, (end, place) => (odd(healed.slice(0, place), end) ? end : ""));
  const line = healed.slice(healed.lastIndexOf("\n\n") + 1);
  if (odd(line, "`")) return `${healed}\``;
  const plain = line.replace(/`[^`]*`/g, "");
  for (const marker of ["**", "~~"]) if (odd(plain, marker)) healed += marker;
  return healed;
}

function odd(text, marker) {
  return text.split(marker).length % 2 === 0;
}
