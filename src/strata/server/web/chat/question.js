// A question on the screen, and the place to change it.

import { fill, h, iconButton } from "../dom.js";
import { resultBlock } from "./calls.js";
import { footer } from "./footer.js";

const LONG = 2500; // characters of a question that is shown in part
const LINES = 30;

/**
 * A question.
 * @param {object} message
 * @param {object} does  edit(message), and what `footer` needs
 */
export class Question {
  constructor(message, does) {
    this.message = message;
    this.does = does;
    this.text = h("div.bubble", {}, message.content);
    const all = h("button.button.tiny.all", { type: "button", "aria-expanded": "false" }, "Show all");
    all.addEventListener("click", () => {
      const open = this.text.classList.toggle("open");
      all.setAttribute("aria-expanded", String(open));
      all.textContent = open ? "Show less" : "Show all";
    });
    this.all = message.content.length > LONG || message.content.split("\n").length > LINES ? all : null;
    this.text.classList.toggle("long", Boolean(this.all));
    this.foot = h("div.foot");
    this.element = h(
      "article.message.question",
      { "aria-label": "You", data: { id: message.id } },
      this.text,
      this.foot,
    );
  }

  update({ siblings }) {
    fill(
      this.foot,
      footer(this.message, siblings, this.does, [
        this.all,
        iconButton("edit", "Edit this question", () => this.edit(), { class: "small" }),
      ]),
    );
  }

  /** Change the text in its place. */
  edit() {
    if (this.form) return;
    const area = h("textarea.input", { "aria-label": "Edit your question", rows: 3, value: this.message.content });
    const done = () => {
      this.form.replaceWith(this.text);
      this.form = null;
      this.element.classList.remove("editing");
      this.foot.hidden = false;
      this.foot.querySelector("[data-act=edit], button")?.focus();
    };
    const send = () => {
      if (!area.value.trim()) return;
      done();
      if (area.value !== this.message.content) this.does.edit(this.message, area.value);
    };
    this.form = h(
      "form.edit",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            send();
          },
        },
      },
      area,
      h(
        "div.actions",
        {},
        h("button.button.plain", { type: "button", on: { click: done } }, "Cancel"),
        h("button.button.main", { type: "submit" }, "Send"),
      ),
    );
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        done();
      }
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        send();
      }
    });
    this.text.replaceWith(this.form);
    this.element.classList.add("editing");
    this.foot.hidden = true;
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

/** The result of a tool, given by the person. */
export class Result {
  constructor(message) {
    this.element = h(
      "article.message.result",
      { "aria-label": `Result of ${message.name}`, data: { id: message.id } },
      resultBlock(message),
    );
  }

  update() {}
}
