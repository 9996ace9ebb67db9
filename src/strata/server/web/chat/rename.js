// Changing a title in its place.

import { h } from "../dom.js";

/** @param {HTMLElement} title @param {string} text @param {(text: string) => void} keep @param {() => void} after  where the focus goes */
export function rename(title, text, keep, after) {
  const input = h("input.input", { "aria-label": "Title of this chat", value: text, maxlength: 200 });
  let open = true;
  const done = (keepIt) => {
    if (!open) return;
    open = false;
    if (keepIt && input.value.trim()) keep(input.value.trim());
    input.replaceWith(title);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    done(event.key === "Enter");
    after();
  });
  input.addEventListener("blur", () => done(true));
  title.replaceWith(input);
  input.focus();
  input.select();
}
