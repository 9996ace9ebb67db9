// Light, dark, or as the system says.

import { fill, h, icon } from "../dom.js";

const ORDER = ["auto", "light", "dark"];
const SHOWN = { auto: ["auto", "as the system"], light: ["sun", "light"], dark: ["moon", "dark"] };

function chosen() {
  return document.documentElement.dataset.theme ?? "auto";
}

function choose(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("strata.theme");
    else localStorage.setItem("strata.theme", theme);
  } catch {
    // it lasts as long as the page
  }
  dispatchEvent(new Event("themechange"));
}

/** The switch; each press is the next of the three. */
export function themeButton() {
  const button = h("button.icon-button", { type: "button" });
  const show = () => {
    const [picture, words] = SHOWN[chosen()];
    button.setAttribute("aria-label", `Theme: ${words}`);
    button.title = `Theme: ${words}`;
    fill(button, icon(picture));
  };
  button.addEventListener("click", () => {
    choose(ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length]);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  show();
  return button;
}
