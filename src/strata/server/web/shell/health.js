// How the server is, looked at often while something is wrong and seldom otherwise. Needs no key.

import { address } from "../api.js";

const CALM = 10_000;
const ALERT = 1_500;

/**
 * Dispatches "change" when `state` is another one.
 *
 * States: "ready", "asleep" (the next request wakes the engine), "loading" (with `loaded`, a share), "restarting",
 * "failed" (with `reason`), "ending", "unreachable"; "unknown" before the first look.
 */
export class Health extends EventTarget {
  state = "unknown";
  loaded = 0;
  reason = "";
  #timer = 0;
  #looking = null;

  start() {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.check();
    });
    addEventListener("online", () => this.check());
    return this.check();
  }

  /** Whether a request would be answered. */
  get ready() {
    return this.state === "ready" || this.state === "asleep";
  }

  /** Look now. */
  check() {
    clearTimeout(this.#timer);
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
      if (!document.hidden) this.#timer = setTimeout(() => this.check(), this.ready ? CALM : ALERT);
    });
    return this.#looking;
  }

  async #look() {
    let found;
    try {
      const response = await fetch(address("health"), { cache: "no-store", signal: AbortSignal.timeout(8000) });
      found = read(await response.json(), response.status);
    } catch {
      found = { state: "unreachable" };
    }
    const { state, loaded = 0, reason = "" } = found;
    const same = state === this.state && loaded === this.loaded && reason === this.reason;
    Object.assign(this, { state, loaded, reason });
    if (!same) this.dispatchEvent(new Event("change"));
  }
}

/** A reason is a text, or of several models one each. */
function words(reason) {
  if (reason && typeof reason === "object")
    return Object.entries(reason)
      .map(([name, text]) => `${name}: ${text}`)
      .join("; ");
  return reason ?? "";
}

function read(told, status) {
  if (status === 200) return { state: told.state === "asleep" ? "asleep" : "ready" };
  if (told.status === "ending") return { state: "ending" };
  if (told.status === "error") return { state: "failed", reason: words(told.reason) };
  if (told.state === "restarting") return { state: "restarting", loaded: told.loaded ?? 0, reason: told.reason ?? "" };
  if (told.status === "loading") return { state: "loading", loaded: told.loaded ?? 0, reason: told.reason ?? "" };
  return { state: "unreachable" };
}
