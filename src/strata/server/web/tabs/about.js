// What is served, on what, and how others reach it.

import { about } from "../about/facts.js";
import { clients } from "../about/clients.js";
import { tablist } from "../about/tablist.js";
import { fill, h, icon } from "../dom.js";
import { copyCode } from "../chat/copying.js";
import { renderCode } from "../chat/markdown.js";

const KEYS = [
  [["Enter"], "send"],
  [["Shift", "Enter"], "a new line"],
  [["Esc"], "stop the answer"],
  [["/"], "to the place to write"],
  [["↑"], "in an empty message: change the last question"],
  [["Ctrl", "Enter"], "send a changed question, or a tool's result"],
];

const VENDORED = [
  ["marked", "MIT", "marked.LICENSE.txt"],
  ["DOMPurify", "Apache 2.0 or MPL 2.0", "dompurify.LICENSE.txt"],
  ["highlight.js", "BSD 3-Clause", "highlight.LICENSE.txt"],
];

export function mount(element, context) {
  const { model, health, keys, copy } = context;
  const page = h("div.page.about-page");
  page.addEventListener("click", copyCode);
  fill(element, page);

  function show() {
    const base = new URL(".", document.baseURI).href.replace(/\/$/, "");
    const name = model.name || "the model";
    const keyed = Boolean(keys.current) || model.error?.status === 401;
    const told = about(model.props, health);
    if (model.names.length > 1) told.facts.unshift(["Models", model.names.join(", ")]);
    fill(
      page,
      h("h1", {}, model.name ? h("span.mono.model-name", {}, model.name) : "About"),
      h("p.lead", {}, told.lead),
      model.error &&
        !model.props &&
        h(
          "div.notice.bad",
          {},
          icon("alert"),
          h(
            "div.grow",
            {},
            h("p", {}, model.error.message),
            model.error.status === 401 &&
              h(
                "div.actions.start",
                {},
                h(
                  "button.button",
                  {
                    type: "button",
                    on: {
                      click: async () => {
                        if (await keys.demand(keys.current)) model.load();
                      },
                    },
                  },
                  "Enter a key",
                ),
              ),
          ),
        ),
      told.facts.length > 0 &&
        h(
          "dl.facts",
          {},
          told.facts.map(([term, value, note]) =>
            h("div", {}, h("dt", {}, term), h("dd.numbers", {}, value, note && h("span.quiet.small", {}, note))),
          ),
        ),
      told.memory.length > 0 &&
        section(
          "Where it runs and what it takes",
          told.memory.map((sentence) => h("p", {}, sentence)),
        ),
      section(
        "Addresses",
        h(
          "dl.addresses",
          {},
          address("For clients of OpenAI", `${base}/v1`, copy),
          address("For clients of Anthropic", base, copy),
          address("Numbers for Prometheus", `${base}/metrics`, copy),
          address("All routes, for machines", `${base}/openapi.json`, copy),
        ),
        h(
          "p.quiet",
          {},
          keyed
            ? "This server demands a key: any of those it was started with."
            : `This server demands no key, so any will do${model.names.length > 1 ? "." : ", and any name of a model."}`,
        ),
      ),
      section(
        "In your client",
        tablist(
          "Clients",
          clients({
            base,
            model: name === "the model" ? "default" : name,
            context: model.props?.n_ctx ?? null,
            keyed,
            several: model.names.length > 1,
          }).map(({ title, parts }) => ({
            title,
            content: parts.map(({ words, code, language }) =>
              words ? h("p.quiet", {}, words) : renderCode(code, language),
            ),
          })),
        ),
      ),
      section(
        "Keys of the chat",
        h(
          "dl.keys",
          {},
          KEYS.map(([names, does]) =>
            h(
              "div",
              {},
              h(
                "dt",
                {},
                names.map((one) => h("kbd", {}, one)),
              ),
              h("dd", {}, does),
            ),
          ),
        ),
      ),
      section(
        "This page",
        h(
          "p",
          {},
          "Chats are kept in this browser and nowhere else; the key, until its tab is closed. The page asks nobody but this server for anything, and runs nothing that a model writes.",
        ),
        h(
          "p",
          {},
          "It is built on ",
          VENDORED.map(([title, licence, file], place) => [
            place > 0 && (place === VENDORED.length - 1 ? " and " : ", "),
            h("a", { href: `static/vendor/${file}` }, title),
            ` (${licence})`,
          ]),
          ".",
        ),
      ),
    );
  }

  model.addEventListener("change", show);
  health.addEventListener("change", show);
  keys.addEventListener("change", show);
  show();
  return {
    shown: () => {
      if (health.ready && model.props?.n_ctx === undefined) model.load();
    },
  };
}

function section(title, ...content) {
  return h("section.part", {}, h("h2", {}, title), content);
}

function address(words, text, copy) {
  const button = h(
    "button.icon-button.small",
    {
      type: "button",
      "aria-label": `Copy the address ${words.toLowerCase()}`,
      title: "Copy",
      on: {
        click: async () => {
          fill(button, icon((await copy(text)) ? "check" : "alert"));
          setTimeout(() => fill(button, icon("copy")), 1500);
        },
      },
    },
    icon("copy"),
  );
  return h("div", {}, h("dt", {}, words), h("dd", {}, h("code", {}, text), button));
}
