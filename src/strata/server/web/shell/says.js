// Passing messages: on the screen, and for those who hear the page.

import { fill, h } from "../dom.js";

/**
 * Show a message for some seconds.
 * @param {string} text
 * @param {{action?: string, run?: () => void, seconds?: number}} [options]  a button that does something about it
 */
export function toast(text, { action, run, seconds = 6 } = {}) {
  const gone = () => one.remove();
  const one = h(
    "div.toast",
    {},
    h("span", {}, text),
    action &&
      h(
        "button.button",
        {
          type: "button",
          on: {
            click: () => {
              gone();
              run();
            },
          },
        },
        action,
      ),
  );
  document.querySelector(".toasts").append(one);
  setTimeout(gone, seconds * 1000);
}

/** Say something to a screen reader, once. */
export function announce(text) {
  const place = document.getElementById("announcer");
  fill(place);
  requestAnimationFrame(() => fill(place, text));
}

/** Put a text on the clipboard; on pages without that right (plain http on another machine) by a selection. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea.unseen", { readonly: true });
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    const before = document.activeElement;
    area.select();
    let done = false;
    try {
      done = document.execCommand("copy");
    } catch {
      // then it cannot be done
    }
    area.remove();
    before?.focus();
    return done;
  }
}
