// The key: asked for when the server demands one, kept until this browser tab is closed, and sent to this server alone.

import { h, uid } from "../dom.js";

const PLACE = "strata.key";

export class Keys extends EventTarget {
  #key = "";
  #asking = null;

  constructor() {
    super();
    try {
      this.#key = sessionStorage.getItem(PLACE) ?? "";
    } catch {
      // no storage: it is kept as long as the page
    }
  }

  /** The key to send; empty if there is none. */
  get current() {
    return this.#key;
  }

  /** Use another key; an empty one forgets. */
  set(key) {
    this.#key = key;
    try {
      if (key) sessionStorage.setItem(PLACE, key);
      else sessionStorage.removeItem(PLACE);
    } catch {
      // as above
    }
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Ask the person for a key; several that ask at once get one answer.
   * @param {string} rejected  the key that was not good
   * @returns {Promise<boolean>} whether there is another key now
   */
  demand(rejected) {
    this.#asking ??= this.#ask(rejected).finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  #ask(rejected) {
    const name = uid("key");
    const input = h("input.input.mono", {
      id: name,
      type: "password",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      required: true,
      "aria-invalid": rejected ? "true" : null,
      "aria-describedby": `${name}-hint`,
    });
    const shown = h("input", {
      type: "checkbox",
      on: {
        change: () => {
          input.type = shown.checked ? "text" : "password";
        },
      },
    });
    const dialog = h(
      "dialog.key-dialog",
      { "aria-labelledby": `${name}-title` },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: `${name}-title` }, "This server needs a key"),
        h(
          "p.quiet",
          {},
          "It is one of those the server was started with (",
          h("code", {}, "--api-key"),
          " or ",
          h("code", {}, "--api-key-file"),
          ").",
        ),
        h(
          "div.field",
          {},
          h("label", { for: name }, "Key"),
          input,
          rejected && h("p.fault", { role: "alert" }, "The server did not accept this key."),
          h("p.hint", { id: `${name}-hint` }, "Kept in this browser tab until you close it."),
        ),
        h("label.check", {}, shown, " Show the key"),
        h(
          "div.actions",
          {},
          h("button.button.plain", { type: "button", on: { click: () => dialog.close("") } }, "Not now"),
          h("button.button.main", { type: "submit", value: "use" }, "Use this key"),
        ),
      ),
    );
    if (rejected) input.value = rejected;
    document.body.append(dialog);
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => {
        const key = dialog.returnValue === "use" ? input.value.trim() : "";
        dialog.remove();
        if (key) this.set(key);
        resolve(Boolean(key));
      });
      dialog.showModal();
      input.focus();
      input.select();
    });
  }
}
