// What an empty chat says.

import { h } from "../dom.js";
import { EXAMPLE } from "./tools.js";

const PEBBLE = [
  ["Count from 1 to 20.", ""],
  ["What is 27 plus 15?", ""],
  ["Set the timer for 25 minutes.", "uses a tool"],
];

/** @param {object} model @param {(text: string) => void} write @param {(tools: string) => void} equip */
export function welcome(model, write, equip) {
  const pebble = model.props?.model_path && /pebble/i.test(model.name);
  return h(
    "div.welcome",
    {},
    h("p.hello", {}, model.name ? ["Talk to ", h("strong", {}, model.name)] : "Talk to the model"),
    h(
      "p.quiet",
      {},
      pebble
        ? "A small model that comes with Strata, to prove the machine. It counts, copies, adds two numbers and calls tools of a simple form; it knows nothing about the world."
        : "Your chats stay in this browser. The server keeps none of them.",
    ),
    pebble &&
      h(
        "ul.starters",
        {},
        PEBBLE.map(([text, words]) =>
          h(
            "li",
            {},
            h(
              "button.starter",
              {
                type: "button",
                on: {
                  click: () => {
                    if (words) equip(EXAMPLE);
                    write(text);
                  },
                },
              },
              text,
              words && h("span.quiet", {}, ` ${words}`),
            ),
          ),
        ),
      ),
  );
}
