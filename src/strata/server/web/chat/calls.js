// Tool calls and their results.

import { h, icon } from "../dom.js";
import { renderCode } from "./markdown.js";
import { whole } from "./request.js";

/** A call: what the model wants to have done, with what. */
export function callBlock(call, running) {
  const writing = running && !whole(call);
  return h("details.call", { open: true, class: writing ? "active" : "" },
    h("summary", {}, icon("tool"), h("span", {}, writing ? "Calling " : "Called ", h("strong.mono", {}, call.name || "…")), icon("right")),
    h("div.call-body", {}, plain(call) ?? renderCode(pretty(call.arguments), call.type === "custom" ? "" : "json")));
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
  if (!entries || entries.some(([, one]) => (typeof one === "object" && one !== null) || String(one).length > 200 || String(one).includes("\n"))) return null;
  if (!entries.length) return h("p.quiet.small", {}, "without arguments");
  return h("dl.arguments", {}, entries.map(([name, one]) => [h("dt.mono", {}, name), h("dd.mono", {}, typeof one === "string" ? one : JSON.stringify(one))]));
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
  return h("details.call.done", { open: message.content.length < 600 },
    h("summary", {}, icon("check"), h("span", {}, "Result of ", h("strong.mono", {}, message.name)), icon("right")),
    h("div.call-body", {}, h("pre.plain", { tabindex: "0", "aria-label": `Result of ${message.name}`, role: "group" }, message.content || "(empty)")));
}
