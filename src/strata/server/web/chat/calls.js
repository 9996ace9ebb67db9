// Tool calls and their results.

import { fill, h, icon } from "../dom.js";
import { renderCode } from "./markdown.js";
import { whole } from "./request.js";

/** A call: what the model wants to have done, with what. Its text grows while it is written. */
export class CallBlock {
  constructor() {
    this.words = h("span");
    this.body = h("div.call-body");
    this.element = h(
      "details.call",
      { open: true },
      h("summary", {}, icon("tool"), this.words, icon("right")),
      this.body,
    );
    this.source = null; // while it is written
    this.done = false;
  }

  update(call, running) {
    if (this.done) return;
    this.done = !running || (call.type !== "custom" && call.arguments && whole(call));
    this.element.classList.toggle("active", !this.done);
    fill(this.words, this.done ? "Called " : "Calling ", h("strong.mono", {}, call.name || "…"));
    if (this.done) {
      fill(this.body, plain(call) ?? renderCode(pretty(call.arguments), call.type === "custom" ? "" : "json"));
    } else {
      if (!this.source) fill(this.body, h("pre.plain.mono", {}, (this.source = document.createTextNode(""))));
      this.source.appendData(call.arguments.slice(this.source.length));
    }
  }
}

/** Arguments that are few and short read better as a list than as JSON. */
function plain(call) {
  if (call.type === "custom") return null;
  let value;
  try {
    value = JSON.parse(call.arguments || "{}");
  } catch {
    return null;
  }
  const entries = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : null;
  if (
    !entries ||
    entries.some(
      ([, one]) => (typeof one === "object" && one !== null) || String(one).length > 200 || String(one).includes("\n"),
    )
  )
    return null;
  if (!entries.length) return h("p.quiet.small", {}, "without arguments");
  return h(
    "dl.arguments",
    {},
    entries.map(([name, one]) => [
      h("dt.mono", {}, name),
      h("dd.mono", {}, typeof one === "string" ? one : JSON.stringify(one)),
    ]),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What a tool gave back. */
export function resultBlock(message) {
  return h(
    "details.call.done",
    { open: message.content.length < 600 },
    h("summary", {}, icon("check"), h("span", {}, "Result of ", h("strong.mono", {}, message.name)), icon("right")),
    h(
      "div.call-body",
      {},
      h(
        "pre.plain",
        { tabindex: "0", "aria-label": `Result of ${message.name}`, role: "group" },
        message.content || "(empty)",
      ),
    ),
  );
}
