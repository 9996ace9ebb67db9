// Tabs: one of several panels at a time, chosen with a click or the arrow keys.

import { h, uid } from "../dom.js";

/** @param {string} label @param {{title: string, content: Node|Node[]}[]} entries */
export function tablist(label, entries) {
  const buttons = [];
  const panels = entries.map(({ title, content }) => {
    const tab = uid("tab");
    const panel = h(
      "div.tabpanel",
      { id: uid("panel"), role: "tabpanel", "aria-labelledby": tab, tabindex: "0" },
      content,
    );
    buttons.push(
      h(
        "button.tab",
        {
          id: tab,
          type: "button",
          role: "tab",
          "aria-controls": panel.id,
          on: { click: () => choose(buttons.findIndex((one) => one.id === tab)) },
        },
        title,
      ),
    );
    return panel;
  });
  function choose(place, focus = false) {
    buttons.forEach((button, number) => {
      button.setAttribute("aria-selected", String(number === place));
      button.tabIndex = number === place ? 0 : -1;
      panels[number].hidden = number !== place;
    });
    if (focus) {
      buttons[place].focus();
      buttons[place].scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }
  const list = h(
    "div.tablist",
    {
      role: "tablist",
      "aria-label": label,
      on: {
        keydown: (event) => {
          const at = buttons.indexOf(document.activeElement);
          const to = {
            ArrowRight: at + 1,
            ArrowDown: at + 1,
            ArrowLeft: at - 1,
            ArrowUp: at - 1,
            Home: 0,
            End: buttons.length - 1,
          }[event.key];
          if (to === undefined) return;
          event.preventDefault();
          choose((to + buttons.length) % buttons.length, true);
        },
      },
    },
    buttons,
  );
  choose(0);
  return h("div.tabbed", {}, list, panels);
}
