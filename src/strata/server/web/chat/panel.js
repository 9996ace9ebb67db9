// Settings of a chat: beside it where there is room, above it where there is not.

import { fill, h, iconButton, uid } from "../dom.js";
import { EMPTY, NUMBERS } from "./settings.js";
import { EXAMPLE, readTools } from "./tools.js";

export class Panel {
  /**
   * @param {(settings: object) => void} changed
   * @param {() => object} defaults  the server's own numbers, by name
   */
  constructor(changed, defaults, close) {
    this.changed = changed;
    this.defaults = defaults;
    this.settings = EMPTY;
    this.fields = new Map();
    const system = uid("system");
    const tools = uid("tools");
    this.system = h("textarea.input", {
      id: system,
      rows: 4,
      placeholder: "How the model should behave in this chat",
      on: { input: () => this.#set({ system: this.system.value }) },
    });
    this.toolsText = h("textarea.input.mono.code-input", {
      id: tools,
      rows: 7,
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      placeholder: '[{"name": …, "description": …, "parameters": …}]',
      "aria-describedby": `${tools}-said`,
      on: {
        input: () => {
          this.#set({ tools: this.toolsText.value });
          this.#judge();
        },
      },
    });
    this.toolsSaid = h("p", { id: `${tools}-said`, "aria-live": "polite" });
    this.toolsOn = h("input", { type: "checkbox", on: { change: () => this.#set({ toolsOn: this.toolsOn.checked }) } });
    const heading = uid("settings");
    this.element = h(
      "section.panel",
      { "aria-labelledby": heading },
      h(
        "header",
        {},
        h("h2", { id: heading }, "Settings of this chat"),
        iconButton("close", "Close the settings", close),
      ),
      h(
        "div.panel-body",
        {},
        h("div.field", {}, h("label", { for: system }, "System prompt"), this.system),
        h(
          "fieldset.numbers-grid",
          {},
          h("legend.label", {}, "Sampling"),
          NUMBERS.map((one) => this.#number(one)),
        ),
        h("p.hint.small.quiet", {}, "An empty field is the server's own value."),
        h(
          "div.field",
          {},
          h(
            "div.spread",
            {},
            h("label", { for: tools }, "Tools"),
            h("label.check.small", {}, this.toolsOn, " offer them to the model"),
          ),
          this.toolsText,
          this.toolsSaid,
          h(
            "div.actions.start",
            {},
            h("button.button", { type: "button", on: { click: () => this.#example() } }, "Insert an example"),
            h("button.button.plain", { type: "button", on: { click: () => this.#format() } }, "Format"),
          ),
          h(
            "p.hint.small.quiet",
            {},
            "JSON as OpenAI or Anthropic take it. When the model calls one, you write what it gives back: nothing is run.",
          ),
        ),
        h(
          "div.actions.start",
          {},
          h("button.button.plain", { type: "button", on: { click: () => this.#reset() } }, "Reset all settings"),
        ),
      ),
    );
  }

  /** Show these. */
  show(settings) {
    this.settings = settings;
    if (this.system.value !== settings.system) this.system.value = settings.system;
    if (this.toolsText.value !== settings.tools) this.toolsText.value = settings.tools;
    this.toolsOn.checked = settings.toolsOn;
    for (const { name } of NUMBERS) {
      const { input } = this.fields.get(name);
      const value = settings.numbers[name];
      if (document.activeElement !== input) input.value = value ?? "";
    }
    this.#hints();
    this.#judge();
  }

  /** Go to the tools. */
  focusTools() {
    this.toolsText.focus();
    this.toolsText.scrollIntoView({ block: "center" });
  }

  #set(part) {
    this.settings = { ...this.settings, ...part };
    this.changed(this.settings);
  }

  #number({ name, label, hint, min, max, step, whole }) {
    const id = uid(name);
    const input = h("input.input.numbers", {
      id,
      type: "number",
      inputmode: whole ? "numeric" : "decimal",
      min,
      max,
      step: whole ? 1 : "any",
      "aria-describedby": `${id}-hint`,
    });
    const said = h("span.hint", { id: `${id}-hint` }, hint);
    input.addEventListener("input", () => {
      const numbers = { ...this.settings.numbers };
      const value = input.valueAsNumber;
      const good = Number.isFinite(value) && value >= min && value <= max && (!whole || Number.isInteger(value));
      const bad = input.validity.badInput || (input.value !== "" && !good);
      input.setAttribute("aria-invalid", String(bad));
      fill(said, bad ? `from ${min} to ${max.toLocaleString("en")}${whole ? ", whole" : ""}` : hint);
      said.className = bad ? "fault" : "hint";
      if (bad || input.value === "") delete numbers[name];
      else numbers[name] = value;
      this.#set({ numbers });
    });
    this.fields.set(name, { input, said });
    return h("div.field", {}, h("label", { for: id }, label), input, said);
  }

  #hints() {
    const own = this.defaults();
    for (const [name, { input }] of this.fields) {
      const value = own[name];
      input.placeholder = typeof value === "number" ? String(value) : "default";
    }
  }

  #judge() {
    let words = "";
    let fault = false;
    try {
      const tools = readTools(this.toolsText.value);
      if (tools.length)
        words = `${tools.length} tool${tools.length === 1 ? "" : "s"}: ${tools.map((tool) => (tool.function ?? tool.custom ?? tool).name).join(", ")}`;
    } catch (error) {
      words = error.message;
      fault = true;
    }
    this.toolsText.setAttribute("aria-invalid", String(fault));
    this.toolsSaid.className = fault ? "fault small" : "small quiet";
    if (this.toolsSaid.textContent !== words) fill(this.toolsSaid, words);
    this.toolsSaid.hidden = !words;
  }

  #example() {
    this.toolsText.value = EXAMPLE;
    this.#set({ tools: EXAMPLE, toolsOn: true });
    this.show(this.settings);
  }

  #format() {
    try {
      this.toolsText.value = JSON.stringify(JSON.parse(this.toolsText.value), null, 2);
      this.#set({ tools: this.toolsText.value });
    } catch {
      this.#judge();
    }
  }

  #reset() {
    for (const { input } of this.fields.values()) input.setAttribute("aria-invalid", "false");
    this.#set({ ...EMPTY, numbers: {} });
    this.show(this.settings);
  }
}
