// The engine in a line, and what went wrong with it.

import { fill, h, icon } from "../dom.js";
import { count, seconds, uptime } from "../figures/format.js";

const WORDS = {
  starting: "Starting", loading: "Loading", ready: "Ready", busy: "Working", restarting: "Restarting", asleep: "Asleep",
  failed: "Does not run", closed: "Ended",
};

/** Seconds of silence of a working engine that are worth a word. */
const SILENT = 3;

export class EngineLine {
  constructor() {
    this.facts = h("dl.line");
    this.notice = h("div.notice.warn", { role: "status", hidden: true });
    this.element = h("div.engine", {}, this.facts, this.notice);
    this.told = "";
  }

  update(snapshot, engine) {
    const loading = engine.state === "loading" && engine.loaded ? ` ${Math.round(engine.loaded * 100)}%` : "";
    fill(this.facts, [
      ["State", `${WORDS[engine.state] ?? engine.state}${loading}`],
      ["Runs on", engine.kind === "script" ? "a script" : engine.device.startsWith("cuda") ? engine.memory[0]?.name ?? engine.device : engine.device ? "the CPU" : "–"],
      ["Context", engine.context === null ? "–" : `${count(engine.context)} tokens`],
      ["Server up", uptime(snapshot.server.uptime)],
      ["Restarts", count(engine.restarts)],
      ["Stalls", engine.stalls ? `${count(engine.stalls)}, longest ${seconds(engine.longest_silence)}` : "0"],
    ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    this.warn(warning(engine));
  }

  warn(text) {
    if (text === this.told) return;
    this.told = text;
    this.notice.hidden = !text;
    fill(this.notice, text ? [icon("alert"), h("p.grow", {}, text)] : []);
  }
}

function warning(engine) {
  const working = engine.state === "busy" || engine.state === "ready";
  if (working && engine.silent > SILENT) return "The engine has not been heard of for some seconds. It may be in a long piece of work; numbers that only it knows are from before.";
  if (engine.state === "failed" || engine.state === "restarting") return `The engine ${engine.state === "failed" ? "does not run" : "is being started again"}. ${engine.reason}`;
  if (engine.restarts && engine.reason) return `The engine was started again ${engine.restarts === 1 ? "once" : `${count(engine.restarts)} times`}. Why the last one ended: ${engine.reason}`;
  return "";
}
