// The page's frame: it mounts one view at a time, by the address's hash (#chat, #monitor, #trace, #about).
//
// A view is a module in tabs/, named in TABS below. Its contract:
//
//   export function mount(element, context)
//
// is called once, when the view is shown for the first time, with an empty, scrolling <section>. It may return (or
// promise) an object with any of
//
//   shown()    the view is on the screen (also called after mount); start what costs something, such as a stream
//   hidden()   it is not any more, or the browser's tab is in the background: stop it
//
// `context` has
//
//   api        api.js: request, json, stream, follow; sends the key and asks for it where it is needed
//   health     shell/health.js: `state`, `ready`, event "change"
//   model      shell/model.js: `name`, `props` (what /props says), event "change"
//   keys       shell/keys.js: `current`, event "change"
//   toast      (text, {action, run}) a passing message; announce(text) the same for screen readers alone
//   announce
//   copy       (text) to the clipboard; promises whether it worked
//   open       ("about") shows another view
//
// Elements are made with dom.js (h, s for SVG, icon); there is no way from text to HTML but chat/markdown.js, and the
// page's policy forbids style attributes in markup, inline scripts and anything from elsewhere. Colours and sizes come
// from css/tokens.css (charts: --data-1 to --data-6); window gets "themechange" when they are others. A view's own CSS
// is css/<name>.css, all of it below .view-<name>. Put the content into <div class="page"> for the usual margins, begin
// with an h1, and give everything that scrolls sideways tabindex="0" and a name.

import { Api } from "./api.js";
import { fill, h, iconButton } from "./dom.js";
import { Health } from "./shell/health.js";
import { Keys } from "./shell/keys.js";
import { Model } from "./shell/model.js";
import { announce, copy, toast } from "./shell/says.js";
import { banner, stateSign } from "./shell/status.js";
import { themeButton } from "./shell/theme.js";

const TABS = [
  { name: "chat", title: "Chat", load: () => import("./tabs/chat.js") },
  { name: "monitor", title: "Monitor", load: () => import("./tabs/monitor.js") },
  { name: "trace", title: "Trace", load: () => import("./tabs/trace.js") },
  { name: "about", title: "About", load: () => import("./tabs/about.js") },
];

const keys = new Keys();
const api = new Api(keys);
const health = new Health();
const model = new Model(api);
const context = {
  api,
  health,
  model,
  keys,
  toast,
  announce,
  copy,
  open: (name) => {
    location.hash = name;
  },
};

const main = document.getElementById("main");
const views = new Map(); // name to {element, view}: what mount returned
let current = null;

function wanted() {
  const name = location.hash.slice(1).split("/")[0];
  return TABS.find((tab) => tab.name === name) ?? TABS[0];
}

async function show() {
  const tab = wanted();
  if (current?.tab === tab) return;
  const before = current;
  const entry = views.get(tab.name) ?? {
    element: h("section.view", { class: `view-${tab.name}`, "aria-label": tab.title }),
    view: null,
    visible: false,
  };
  current = { tab, entry };
  if (before) {
    leave(before.entry);
    before.entry.element.hidden = true;
  }
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${tab.name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = tab.title === "Chat" ? "Strata" : `${tab.title} · Strata`;
  entry.element.hidden = false;
  if (!views.has(tab.name)) {
    views.set(tab.name, entry);
    main.append(entry.element);
    try {
      const module = await tab.load();
      entry.view = (await module.mount(entry.element, context)) ?? {};
    } catch (error) {
      console.error(error);
      views.delete(tab.name); // the next visit tries again
      fill(
        entry.element,
        h(
          "div.page",
          {},
          h("h1", {}, tab.title),
          h("p.quiet", {}, "This view could not be loaded. Reload the page to try again."),
        ),
      );
    }
  }
  if (current?.entry === entry) enter(entry);
}

function enter(entry) {
  if (!entry.view || entry.visible || document.hidden) return;
  entry.visible = true;
  entry.view.shown?.();
}

function leave(entry) {
  if (!entry.visible) return;
  entry.visible = false;
  entry.view.hidden?.();
}

function start() {
  fill(
    document.querySelector(".tabs"),
    TABS.map((tab) => h("a", { href: `#${tab.name}` }, tab.title)),
  );
  const forget = iconButton(
    "key",
    "Forget the key",
    () => {
      keys.set("");
      toast("The key is forgotten.");
    },
    { hidden: !keys.current },
  );
  keys.addEventListener("change", () => {
    forget.hidden = !keys.current;
    if (keys.current && !model.props) model.load();
  });
  fill(document.querySelector(".top-end"), stateSign(health, model), forget, themeButton());
  banner(document.querySelector(".banner"), health);

  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => {
    if (current) (document.hidden ? leave : enter)(current.entry);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    // its hash is no view
    event.preventDefault();
    main.focus();
  });
  health.addEventListener("change", () => {
    if (health.ready) model.load();
  });
  show();
  health.start();
}

start();
