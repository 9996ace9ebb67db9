// The messages of one chat, top to bottom, and the scrolling that follows them.

import { fill, h, icon } from "../dom.js";
import { Answer } from "./answer.js";
import { copyCode } from "./copying.js";
import { Question, Result } from "./question.js";
import { familiesOf } from "./tree.js";

const NEAR = 60; // pixels from the bottom that still count as being there

export class Transcript {
  #views = new Map(); // message id to its view
  #following = true;
  #at = 0; // where following last left the scroller
  #busy = false;
  #does;

  /** @param {object} does  what messages can have done: edit, retry, resume, answer, again, show */
  constructor(does) {
    this.#does = { ...does, grown: () => this.#follow() };
    this.list = h("div.messages");
    this.empty = h("div.empty");
    this.element = h("div.scroller", { tabindex: "-1" }, h("div.column", {}, this.empty, this.list));
    this.jump = h(
      "button.jump",
      {
        type: "button",
        hidden: true,
        "aria-label": "To the newest message",
        title: "To the newest message",
        on: { click: () => this.toEnd() },
      },
      icon("bottom"),
    );
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.list.addEventListener("click", copyCode);
    this.list.addEventListener("click", (event) => {
      // what is unfolded stays where it was clicked
      if (event.target.closest("summary")) this.#following = false;
    });
    new ResizeObserver(() => this.#follow()).observe(this.element);
  }

  /**
   * Show these messages.
   * @param {object[]} path
   * @param {object[]} nodes  all of the chat
   * @param {Map<string, object>} runs  by message id
   */
  show(path, nodes, runs) {
    const ids = new Set(path.map((message) => message.id));
    for (const [id, view] of this.#views) {
      if (ids.has(id)) continue;
      view.element.remove();
      this.#views.delete(id);
    }
    const families = familiesOf(nodes);
    let before = null;
    this.#busy = true; // the page is laid out once at the end, not once for each message
    path.forEach((message, place) => {
      let view = this.#views.get(message.id);
      if (!view) {
        view = this.#made(message);
        this.#views.set(message.id, view);
      }
      const wanted = before ? before.nextSibling : this.list.firstChild;
      if (wanted !== view.element) this.list.insertBefore(view.element, wanted);
      before = view.element;
      this.#update(message, place === path.length - 1, families, runs);
    });
    this.#busy = false;
    this.empty.hidden = path.length > 0;
    this.#follow();
  }

  /** Only one of them changed. */
  refresh(message, path, nodes, runs) {
    if (this.#views.has(message.id)) this.#update(message, message.id === path.at(-1)?.id, familiesOf(nodes), runs);
  }

  /** Begin with another chat. */
  clear() {
    this.#views.clear();
    fill(this.list);
    this.#following = true;
    this.#at = 0;
  }

  view(id) {
    return this.#views.get(id);
  }

  toEnd() {
    this.#following = true;
    this.#at = 0;
    this.#follow();
  }

  #made(message) {
    if (message.role === "user") return new Question(message, this.#does);
    return message.role === "tool" ? new Result(message) : new Answer(message, this.#does);
  }

  #update(message, last, families, runs) {
    const view = this.#views.get(message.id);
    const run = runs.get(message.id) ?? null;
    const siblings = families.get(message.parent ?? "");
    const shape = JSON.stringify([last, message.state, message.usage, siblings.map((one) => one.id)]);
    if (!run && view.shape === shape && view.message === message) return; // nothing about it is new
    view.shape = run ? null : shape;
    view.message = message;
    view.update({ siblings, run, last });
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    this.#following = scrollHeight - scrollTop - clientHeight < NEAR;
    this.jump.hidden = this.#following;
  }

  #follow() {
    if (this.#busy) return;
    // Somebody who scrolls up is believed at once, not only when the browser gets round to saying so.
    if (this.#following && this.element.scrollTop >= this.#at - 1) this.element.scrollTop = this.element.scrollHeight;
    else this.#scrolled();
    this.#at = this.#following ? this.element.scrollTop : 0;
  }
}
