// Where a question is written.

import { fill, h, icon } from "../dom.js";
import { fenced } from "./files.js";
import { EFFORTS } from "./settings.js";

const LARGEST = 2 << 20; // bytes of a text file

export class Composer {
  /**
   * @param {{send: (text: string) => void, stop: () => void, effort: (value: string) => void, model: (name: string) => void, tools: () => void,
   *   typed: (text: string) => void, last: () => void, refused: (why: string) => void}} does
   */
  constructor(does) {
    this.does = does;
    this.area = h("textarea", {
      rows: 1,
      "aria-label": "Your message",
      placeholder: "Write a message",
      autocomplete: "off",
      on: {
        input: () => {
          this.#grow();
          does.typed(this.area.value);
          this.#show();
        },
        keydown: (event) => this.#key(event),
      },
    });
    this.effort = h(
      "select.pill",
      {
        "aria-label": "Thinking",
        title: "How hard the model thinks before it answers",
        on: {
          change: () => {
            this.#label();
            does.effort(this.effort.value);
          },
        },
      },
      EFFORTS.map(([value, words]) => h("option", { value }, `Thinking: ${words.toLowerCase()}`)),
    );
    this.model = h("select.pill", {
      "aria-label": "Model",
      title: "Which model answers",
      hidden: true,
      on: { change: () => does.model(this.model.value) },
    });
    this.tools = h("button.pill", { type: "button", on: { click: does.tools } });
    this.button = h("button.send", { type: "submit" });
    this.note = h("p.note.numbers");
    this.element = h(
      "form.composer",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            this.#press();
          },
        },
      },
      h(
        "div.box",
        {},
        this.area,
        h("div.row", {}, this.model, this.effort, this.tools, h("span.grow"), this.note, this.button),
      ),
    );
    this.area.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    this.element.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    this.element.addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
    this.element.addEventListener("mousedown", (event) => {
      if (event.target.closest(".box") && !event.target.closest("textarea, button, select")) {
        event.preventDefault();
        this.area.focus();
      }
    });
    this.running = false;
    this.#show();
  }

  /** @param {{running: boolean, models: string[], model: string, effort: string, tools: number, toolsFault: boolean, note: string}} now */
  update({ running, models, model, effort, tools, toolsFault, note }) {
    this.running = running;
    this.model.hidden = models.length < 2;
    if (
      this.model.options.length !== models.length ||
      models.some((name, place) => this.model.options[place].value !== name)
    ) {
      fill(
        this.model,
        models.map((name) => h("option", { value: name }, name)),
      );
    }
    this.model.value = model;
    this.effort.value = effort;
    this.#label();
    fill(
      this.tools,
      icon("tool"),
      toolsFault ? "Tools: look again" : tools ? `${tools} tool${tools === 1 ? "" : "s"}` : "Tools",
    );
    this.tools.classList.toggle("on", tools > 0);
    this.tools.classList.toggle("fault", toolsFault);
    fill(this.note, note);
    this.#show();
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    this.area.value = value;
    this.#grow();
    this.#show();
  }

  focus() {
    this.area.focus();
  }

  #label() {
    this.effort.classList.toggle("on", this.effort.value !== "");
  }

  #show() {
    const shape = this.running ? "stop" : "send";
    if (this.button.dataset.shape !== shape) {
      this.button.dataset.shape = shape;
      this.button.setAttribute("aria-label", this.running ? "Stop the answer" : "Send");
      this.button.title = this.running ? "Stop the answer (Esc)" : "Send (Enter)";
      fill(this.button, icon(shape));
    }
    this.button.disabled = !this.running && !this.area.value.trim();
  }

  #press() {
    if (this.running) this.does.stop();
    else if (this.area.value.trim()) this.does.send(this.area.value);
  }

  #key(event) {
    if (event.isComposing || event.keyCode === 229) return; // an input method is at work: Enter is its own
    if (event.key === "Enter" && !event.shiftKey && !event.altKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      if (!this.running && this.area.value.trim()) this.does.send(this.area.value);
    } else if (event.key === "ArrowUp" && !this.area.value) {
      event.preventDefault();
      this.does.last();
    }
  }

  /** Text files that are dropped or pasted become part of the message, each in a block with its name. */
  async #take(event, { files }) {
    if (!files.length) return;
    event.preventDefault();
    for (const file of [...files]) {
      try {
        if (file.size > LARGEST) throw new Error(`${file.name} is larger than ${LARGEST >> 20} MB.`);
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        if (text.includes("\0")) throw new Error("");
        const room = this.area.value && !this.area.value.endsWith("\n") ? "\n\n" : "";
        this.text = `${this.area.value}${room}${fenced(text.replace(/\n$/, ""), file.name)}\n`;
      } catch (error) {
        this.does.refused(error.message.includes(file.name) ? error.message : `${file.name} is not a text file.`);
      }
    }
    this.does.typed(this.area.value);
    this.area.focus();
  }

  /** As high as its text. `field-sizing` does it where it is known. */
  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
  }
}
