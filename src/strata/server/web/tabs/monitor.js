// What the server does now, and has done in the last minutes. See docs/page.md.

import { fill, h, icon } from "../dom.js";
import { Drafts } from "../monitor/drafts.js";
import { EngineLine } from "../monitor/engine.js";
import { Experts } from "../monitor/experts.js";
import { Feed } from "../monitor/feed.js";
import { Kept } from "../monitor/kept.js";
import { Memory } from "../monitor/memory.js";
import { Recent, Underway } from "../monitor/requests.js";
import { Speeds } from "../monitor/speeds.js";

export function mount(element, { api, keys, announce, toast }) {
  const feed = new Feed(api);
  const parts = {
    engine: new EngineLine(), speeds: new Speeds(), underway: new Underway(), drafts: new Drafts(), experts: new Experts(),
    memory: new Memory(), kept: new Kept(), recent: new Recent(),
  };
  let chosen = "";   // the model to show where there are several
  let paused = false;
  let visible = false;

  const live = h("span.live", {}, h("span.dot"), h("span.text"));
  const pause = h("button.button", { type: "button", "aria-pressed": "false", on: { click: () => setPaused(!paused) } }, "Pause");
  const memory = h("button.button", { type: "button", hidden: true, on: { click: () => change() } }, "Unload");
  const models = h("select.input", { "aria-label": "Model", on: { change: () => { chosen = models.value; show(); } } });
  const notice = h("div.notice", { role: "status", hidden: true });
  const body = h("div.parts", { hidden: true }, parts.engine.element, parts.speeds.element, parts.underway.element,
    h("div.pair", {}, parts.drafts.element, h("div.stack", {}, parts.memory.element, parts.experts.element)),
    parts.kept.element, parts.recent.element);
  fill(element, h("div.page", {}, h("div.view-head", {}, h("h1", {}, "Monitor"), live, h("div.view-tools", {}, models, memory, pause)), notice, body));

  function setPaused(wanted) {
    paused = wanted;
    pause.setAttribute("aria-pressed", String(paused));
    fill(pause, paused ? "Go on" : "Pause");
    announce(paused ? "The numbers stand still." : "The numbers change again.");
    follow();
  }

  function follow() {
    if (visible && !paused) feed.start();
    else feed.stop();
  }

  function show() {
    const snapshot = feed.latest;
    if (!snapshot) return;
    const names = snapshot.engines.map((one) => one.model);
    if (!names.includes(chosen)) chosen = names[0];
    models.hidden = names.length < 2;
    if (names.join("\n") !== [...models.options].map((one) => one.value).join("\n")) {
      fill(models, names.map((name) => h("option", { value: name }, name)));
    }
    models.value = chosen;
    const engine = snapshot.engines.find((one) => one.model === chosen);
    body.hidden = !engine;
    if (!engine) return;
    for (const part of [parts.engine, parts.underway, parts.memory, parts.recent]) part.update(snapshot, engine);
    for (const part of [parts.drafts, parts.experts, parts.kept]) part.update(engine);
    parts.speeds.update(engine, feed, snapshot.time);
    offer(engine);
  }

  /** Whether the model is in memory is changed by hand. */
  function offer(engine) {
    const there = engine.state === "ready" || engine.state === "busy";
    memory.hidden = !there && engine.state !== "asleep" && engine.state !== "failed";
    fill(memory, there ? "Unload" : "Load");
    memory.title = there ? "Gives its memory back as soon as its answers have ended; the next message loads it again" : "Loads it now";
    memory.dataset.does = there ? "unload" : "load";
  }

  async function change() {
    const { does } = memory.dataset;
    memory.disabled = true;
    try {
      await api.json(`v1/models/${does}`, { body: { model: chosen } });
      announce(does === "load" ? "The model is being loaded." : "The model is unloaded when its answers have ended.");
    } catch (error) {
      toast(error.message);
    } finally {
      memory.disabled = false;
    }
  }

  function state() {
    live.dataset.state = paused ? "paused" : feed.state;
    fill(live.querySelector(".text"), paused ? "Paused" : feed.state === "open" ? "Live" : feed.state === "stopped" ? "" : "Connecting");
    const told = feed.latest ? "The numbers below are from before." : "";
    const error = feed.error;
    notice.hidden = feed.state === "open" || feed.state === "stopped" || (feed.state === "waiting" && !error && Boolean(feed.latest));
    if (notice.hidden) return;
    const words = feed.state === "denied" ? (error?.status === 401 ? "A key is needed to see this." : error?.message)
      : error ? error.message : "Asking the server.";
    fill(notice, icon("info"), h("p.grow", {}, `${words} ${told}`),
      feed.state === "denied" && h("button.button", { type: "button", on: { click: () => { feed.stop(); follow(); } } }, "Try again"));
  }

  feed.addEventListener("snapshot", show);
  feed.addEventListener("state", state);
  keys.addEventListener("change", () => { if (feed.state === "denied" && keys.current) { feed.stop(); follow(); } });
  return {
    shown() { visible = true; follow(); },
    hidden() { visible = false; follow(); },
  };
}
