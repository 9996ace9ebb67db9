// What stands below a message: its versions, buttons and numbers.

import { fill, h, icon, iconButton } from "../dom.js";
import { announce, copy } from "../shell/says.js";

/** Siblings, buttons and numbers below a message. */
export function footer(message, siblings, does, buttons) {
  const place = siblings.findIndex((one) => one.id === message.id);
  const many =
    siblings.length > 1 &&
    h(
      "div.branches",
      { role: "group", "aria-label": "Versions" },
      iconButton("left", "Version before", () => does.show(siblings[place - 1], "left"), {
        class: "small",
        disabled: place === 0,
      }),
      h("span.numbers", {}, `${place + 1} / ${siblings.length}`),
      iconButton("right", "Next version", () => does.show(siblings[place + 1], "right"), {
        class: "small",
        disabled: place === siblings.length - 1,
      }),
    );
  const copied = iconButton(
    "copy",
    message.role === "user" ? "Copy this question" : "Copy this answer",
    async () => {
      const done = await copy(message.content);
      announce(done ? "Copied" : "The browser did not allow it");
      fill(copied, icon(done ? "check" : "alert"));
      setTimeout(() => fill(copied, icon("copy")), 1500);
    },
    { class: "small" },
  );
  return [many, message.content && copied, buttons, numbers(message)];
}

function numbers({ usage, speed }) {
  if (!usage) return null;
  const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  const rate = speed && usage.answer > 7 && (speed < 10 ? speed.toFixed(1) : Math.round(speed).toLocaleString("en"));
  const parts = [count(usage.answer, "token"), rate && `${rate} per second`];
  const read = `${count(usage.prompt, "token")} of conversation, ${usage.cached.toLocaleString("en")} of them known already${usage.thought ? `; ${usage.thought.toLocaleString("en")} of the answer's are thoughts` : ""}`;
  return h("span.figures.numbers", { title: read }, parts.filter(Boolean).join(" · "));
}
