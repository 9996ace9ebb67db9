// The button of a block of code; one listener on what holds the blocks does for all of them.

import { announce, copy } from "../shell/says.js";

export async function copyCode(event) {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const done = await copy(button.closest(".code").querySelector("code").textContent);
  button.textContent = done ? "Copied" : "Not allowed";
  announce(done ? "Copied" : "The browser did not allow it");
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
}
