// The engine's last windows on a timeline. See docs/page.md.

import { fill, h, icon, iconButton } from "../dom.js";
import { count, plural } from "../figures/format.js";
import { Table } from "../figures/table.js";
import { Details, micro, title, words } from "../trace/details.js";
import { PHASES, layerAt, layersOf, windowsOf } from "../trace/model.js";
import { Layers } from "../trace/layers.js";
import { Summary } from "../trace/summary.js";
import { Timeline } from "../trace/timeline.js";

const AGAIN = 1000;   // milliseconds between two looks while it follows
const SLOW = 300;     // milliseconds after which it says what it waits for
const LISTED = 200;   // windows that the table shows at most

export function mount(element, { api, keys, toast, announce }) {
  const timeline = new Timeline();
  const details = new Details();
  const totals = new Summary();
  const layers = new Layers();
  const list = new Table({
    name: "Windows", most: 14, empty: "No windows are shown.",
    columns: [
      { title: "Window", kind: "head", text: (row) => title(row) },
      { title: "Total", kind: "number", text: (row) => micro(row.end - row.start) },
      ...PHASES.map((phase) => ({ title: phase.name, kind: "number", text: (row) => micro(row.times[phase.key]) })),
      { title: "Rows", kind: "number", text: (row) => count(row.rows) },
      { title: "Conversations", kind: "number", text: (row) => count(row.conversations) },
      { title: "Tokens", kind: "number", text: (row) => count(row.tokens) },
      { title: "Guessed", kind: "number", text: (row) => count(row.guessed) },
      { title: "Right", kind: "number", text: (row) => count(row.accepted) },
    ],
  });
  let raw = null;        // the document as it came, for the export
  let following = false;
  let visible = false;
  let asking = null;
  let timer = 0;

  const many = h("select.input", { "aria-label": "How many windows", on: { change: () => load({ keep: false }) } },
    [64, 256, 1024, 4096].map((one) => h("option", { value: one, selected: one === 256 }, `Last ${count(one)}`)));
  const models = h("select.input", { "aria-label": "Model", hidden: true, on: { change: () => load({ keep: false }) } });
  const follow = h("button.button", { type: "button", "aria-pressed": "false", on: { click: () => setFollowing(!following) } }, "Follow");
  const refresh = iconButton("retry", "Load the last windows", () => load({ keep: true, aloud: true }));
  const save = h("button.button", { type: "button", disabled: true, on: { click: download } }, icon("download"), h("span", {}, "Export"));
  save.title = "A file for Perfetto (ui.perfetto.dev) or chrome://tracing";
  const closer = [
    iconButton("plus", "Zoom in", () => timeline.zoom(0.5)),
    iconButton("minus", "Zoom out", () => timeline.zoom(2)),
    h("button.button.plain", { type: "button", on: { click: () => timeline.fit() } }, "Show all"),
  ];
  const tip = h("div.tip", { "aria-hidden": "true", hidden: true });
  const notice = h("div.notice", { role: "status", hidden: true });
  const range = h("p.detail");
  const listed = h("p.detail");
  const table = h("details.listing", { on: { toggle: () => tell() } }, h("summary", {}, "The same as a table"), listed, list.element);
  const body = h("div.parts", { hidden: true },
    h("section.card.main", { "aria-label": "Timeline" },
      h("div.tools", {}, range, h("div.view-tools", {}, closer)),
      h("div.place", {}, timeline.element, tip),
      h("p.hint.touch", {}, "Drag to move, pinch to zoom, tap a window to see what it did."),
      h("p.hint.mouse", { id: "trace-keys" }, "Drag to move; pinch, or scroll with Ctrl or after a click, to zoom. Keys: arrows choose a window or, with Shift, move; plus and minus zoom; 0 shows all."),
      details.element),
    totals.element, layers.element, table);
  fill(element, h("div.page", {},
    h("div.view-head", {}, h("h1", {}, "Trace"), h("div.view-tools", {}, models, many, follow, refresh, save)), notice, body));

  timeline.addEventListener("choose", ({ detail }) => details.show(timeline.chosen, { aloud: !detail.quiet && document.activeElement === timeline.stage }));
  timeline.addEventListener("hover", ({ detail: { one, spot, time } }) => hover(one, spot, time));
  timeline.addEventListener("view", () => tell());

  function hover(one, spot, time) {
    tip.hidden = !one;
    if (!one) return;
    const layer = layerAt(one, time);
    const inside = layer === null ? "" : `. Layer ${layer}: ${micro(layersOf(one)[layer])}`;
    fill(tip, `${title(one)}: ${micro(one.end - one.start)}, ${words(one)}${inside}`);
    const box = timeline.element.getBoundingClientRect();
    const stage = timeline.stage.getBoundingClientRect();
    const left = stage.left - box.left + spot.x - tip.offsetWidth / 2;
    tip.style.setProperty("left", `${Math.max(0, Math.min(box.width - tip.offsetWidth, left))}px`);
  }

  let frame = 0;
  function tell() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const { shown, windows } = timeline;
      totals.update(shown, windows.length);
      layers.update(shown);
      fill(range, timeline.whole || !shown.length ? plural(windows.length, "window or pass", "windows and passes")
        : `${count(shown[0].number)}${shown.length > 1 ? ` to ${count(shown.at(-1).number)}` : ""} of ${count(windows.length)}`);
      if (!table.open) return;
      list.update(shown.slice(-LISTED).reverse());
      fill(listed, shown.length > LISTED ? `The last ${LISTED} of the ${count(shown.length)} that are shown; zoom in for others.` : "Those that are shown, the newest first.");
    });
  }

  async function load({ keep = true, aloud = false } = {}) {
    asking?.abort();
    const mine = asking = new AbortController();
    const slow = setTimeout(() => raw || say("The engine is asked for its windows. It answers between two passes, or once it is loaded.", "info"), SLOW);
    try {
      const whose = models.value ? `&model=${encodeURIComponent(models.value)}` : "";
      const document = await api.json(`v1/strata/trace?windows=${many.value}${whose}`, { signal: mine.signal });
      raw = document;
      const windows = windowsOf(document);
      save.disabled = !windows.length;
      body.hidden = !windows.length;
      say(windows.length ? "" : "The engine has computed nothing yet. Ask it something, and its windows appear here.", "info");
      timeline.set(windows, { keep });
      if (aloud) announce(`${plural(windows.length, "window", "windows")} loaded`);
    } catch (error) {
      if (mine.signal.aborted) return;
      say(`${error.message}${raw ? " What is shown is from before." : ""}`, "alert");
    } finally {
      clearTimeout(slow);
      if (asking === mine) asking = null;
      schedule();
    }
  }

  /** Which models there are to choose from, if there are several. */
  async function choose() {
    try {
      const names = (await api.json("v1/models", { quiet: true })).data.map((one) => one.id);
      models.hidden = names.length < 2;
      const chosen = models.value;
      fill(models, names.length < 2 ? [] : names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    } catch {
      // the trace itself says what is wrong
    }
  }

  function say(text, picture) {
    notice.hidden = !text;
    if (text && notice.textContent !== text) fill(notice, icon(picture), h("p.grow", {}, text));
  }

  function schedule() {
    clearTimeout(timer);
    if (visible && (following || !raw?.traceEvents?.some((one) => one.ph === "X"))) timer = setTimeout(() => load(), following ? AGAIN : 3 * AGAIN);
  }

  function setFollowing(wanted) {
    following = wanted;
    follow.setAttribute("aria-pressed", String(following));
    if (following) load();
    else schedule();
  }

  function download() {
    const url = URL.createObjectURL(new Blob([JSON.stringify(raw)], { type: "application/json" }));
    h("a", { href: url, download: `strata-trace-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    toast("The file opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.");
  }

  keys.addEventListener("change", () => { if (visible && keys.current) load(); });
  return {
    shown() { visible = true; load({ keep: true }); choose(); },
    hidden() {
      visible = false;
      clearTimeout(timer);
      asking?.abort();
    },
  };
}
