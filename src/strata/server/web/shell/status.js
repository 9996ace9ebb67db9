// What the top bar and the banner say about the server.

import { fill, h, icon } from "../dom.js";

const WORDS = {
  unknown: ["waiting", "Looking for the server"],
  ready: ["ready", "Ready"],
  asleep: ["ready", "Asleep; the next message wakes it"],
  loading: ["waiting", "Loading"],
  restarting: ["waiting", "Restarting"],
  failed: ["bad", "The engine does not run"],
  ending: ["waiting", "The server is ending"],
  unreachable: ["bad", "The server does not answer"],
};

/** The small sign at the right: a dot, the model's name, and the state for those who do not see the dot. */
export function stateSign(health, model) {
  const words = h("span.unseen");
  const name = h("span.name");
  const sign = h("div.state", {}, h("span.dot"), name, words);
  const show = () => {
    const [kind, text] = WORDS[health.state];
    sign.dataset.state = kind;
    const share = health.state === "loading" && health.loaded ? ` ${Math.round(health.loaded * 100)}%` : "";
    const told = kind === "ready" ? model.name || text : text + share;
    fill(name, told);
    fill(words, kind === "ready" ? ` ${text}` : "");
    sign.title = model.name ? `${model.name}: ${text}${share}` : text + share;
  };
  health.addEventListener("change", show);
  model.addEventListener("change", show);
  show();
  return sign;
}

/** The line under the top bar while something is wrong. */
export function banner(element, health) {
  let late = 0;
  const again = h("button.button", { type: "button", on: { click: () => health.check() } }, "Try now");
  const show = () => {
    const [line, bad, button] = words(health);
    element.hidden = !line;
    element.classList.toggle("bad", Boolean(bad));
    fill(element, line && [icon(bad ? "alert" : "info"), h("p", {}, line), button && again]);
  };
  health.addEventListener("change", () => {
    clearTimeout(late);
    if (health.ready) show();
    else late = setTimeout(show, 700); // what is over at once is not worth a jump of the page
  });
}

function words(health) {
  switch (health.state) {
    case "loading": {
      const share = health.loaded ? ` (${Math.round(health.loaded * 100)}%)` : "";
      return [`The model is being loaded${share}. A message can be sent as soon as it is there.`, false, false];
    }
    case "restarting":
      return [
        "The engine ended and is being started again. What you wrote is kept; the answer under way was lost.",
        false,
        false,
      ];
    case "failed":
      return [
        `The engine does not run and will not start by itself${health.reason ? `: ${health.reason}` : "."} The server's log has the place; start the server again when the reason is gone.`,
        true,
        true,
      ];
    case "ending":
      return ["The server is ending. This page goes on when it is started again.", false, false];
    case "unreachable":
      return [
        "The server does not answer. It may be restarting, or the connection is gone; this page tries again by itself.",
        true,
        true,
      ];
    default:
      return ["", false, false];
  }
}
