// A button with a menu below it, worked with the arrow keys.

import { h, icon, iconButton, uid } from "../dom.js";

/** @param {string} label @param {[string, string, () => void][]} entries  picture, words, what it does */
export function menuButton(label, entries) {
  const id = uid("menu");
  const items = entries.map(([picture, words, run]) =>
    h(
      "button.menu-item",
      {
        type: "button",
        role: "menuitem",
        tabindex: "-1",
        on: {
          click: () => {
            close(true);
            run();
          },
        },
      },
      icon(picture),
      words,
    ),
  );
  const menu = h("div.menu", { id, role: "menu", "aria-label": label, popover: "auto" }, items);
  const button = iconButton(
    "more",
    label,
    () => {
      if (menu.togglePopover()) items[0].focus();
    },
    { "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": id },
  );
  const close = (back) => {
    menu.hidePopover();
    if (back) button.focus();
  };
  menu.addEventListener("toggle", (event) => {
    button.setAttribute("aria-expanded", String(event.newState === "open"));
  });
  menu.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    const place = button.getBoundingClientRect();
    menu.style.top = `${place.bottom + 6}px`;
    menu.style.right = `${document.documentElement.clientWidth - place.right}px`;
  });
  menu.addEventListener("keydown", (event) => {
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      items.at(to % items.length).focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    }
  });
  return h("span.menu-place", {}, button, menu);
}
