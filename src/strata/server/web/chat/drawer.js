// A panel that stands beside the chat where there is room, and comes over it as a dialog where there is not.

import { h } from "../dom.js";

export class Drawer {
  #dialog;
  #query;

  /**
   * @param {HTMLElement} layout  where it stands
   * @param {HTMLElement} panel
   * @param {HTMLElement} button  shows it
   * @param {{side: "left"|"right", wide: string, open: boolean}} options  `wide`: from which width on there is room
   */
  constructor(layout, panel, button, { side, wide, open }) {
    Object.assign(this, { layout, panel, button, side });
    this.open_ = open;
    this.#query = matchMedia(`(min-width: ${wide})`);
    this.#dialog = h("dialog.drawer", { class: side, "aria-label": panel.getAttribute("aria-label") ?? button.title });
    this.#dialog.addEventListener("close", () => this.#show());
    this.#dialog.addEventListener("click", (event) => {
      if (event.target === this.#dialog) this.close();
    });
    layout.append(this.#dialog);
    this.#query.addEventListener("change", () => {
      this.#dialog.close();
      this.#show();
    });
    this.#show();
  }

  open() {
    if (this.#query.matches) {
      this.open_ = true;
    } else if (!this.#dialog.open) {
      this.#dialog.append(this.panel);
      this.panel.hidden = false;
      this.#dialog.showModal();
      this.button.setAttribute("aria-expanded", "true");
      return;
    }
    this.#show();
  }

  close() {
    if (this.#dialog.open) {
      this.#dialog.close();
      return;
    }
    if (this.#query.matches) {
      const inside = this.panel.contains(document.activeElement);
      this.open_ = false;
      this.#show();
      if (inside) this.button.focus();
    }
  }

  /** Close it if it lies over the chat. */
  uncover() {
    if (this.#dialog.open) this.#dialog.close();
  }

  toggle() {
    if (this.#query.matches ? this.open_ : this.#dialog.open) this.close();
    else this.open();
  }

  /** Put the panel where it belongs. */
  #show() {
    const beside = this.#query.matches;
    if (this.#dialog.open) return;
    if (beside && this.panel.parentElement !== this.layout) {
      if (this.side === "left") this.layout.prepend(this.panel);
      else this.layout.append(this.panel);
    }
    this.panel.hidden = !beside || !this.open_;
    if (!beside && this.panel.parentElement !== this.#dialog) this.#dialog.append(this.panel);
    this.button.setAttribute("aria-expanded", String(beside && this.open_));
  }
}
