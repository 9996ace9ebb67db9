// One answer under way: asks, waits where the server says so, gathers, stops.

import { ApiError, sleep } from "../api.js";
import { take } from "./request.js";

const PATIENCE = 10 * 60_000; // milliseconds to wait for a server that loads or is full

/**
 * Dispatches "update" when `message` or one of the fields changed, and "end" at the end.
 *
 * `phase`: "waiting" (nobody has said anything yet), "reading" (`progress` says how far), "answering", "held" (the
 * server cannot take it now: `hold` says why), "ended".
 */
export class Run extends EventTarget {
  phase = "waiting";
  progress = null;
  hold = null;
  #abort = new AbortController();
  #api;
  #health;

  constructor(api, health, message) {
    super();
    this.#api = api;
    this.#health = health;
    this.message = message;
  }

  /** End it now; what is there is kept. */
  stop() {
    this.#abort.abort();
  }

  /** @param {object} body  of the request */
  async start(body) {
    const message = this.message;
    const deadline = Date.now() + PATIENCE;
    for (let attempt = 0; ; attempt += 1) {
      try {
        await this.#once(body);
        break;
      } catch (error) {
        if (this.#abort.signal.aborted) {
          message.state = "stopped";
          break;
        }
        const told =
          error instanceof ApiError
            ? error
            : new ApiError(0, `This page made a mistake: ${error.message}`, { code: "page" });
        if (!(error instanceof ApiError)) console.error(error);
        if (this.#health.ready && told.status !== 429) this.#health.check();
        if (!this.#mayWait(told, attempt) || Date.now() > deadline) {
          message.state = "failed";
          message.error = { status: told.status, code: String(told.code), message: told.message };
          break;
        }
        await this.#wait(told, attempt);
        if (this.#abort.signal.aborted) {
          message.state = "stopped";
          break;
        }
        this.#now("waiting");
      }
    }
    if (message.thought === null && message.reasoning) message.thought = Date.now() - message.began;
    this.#now("ended");
    this.dispatchEvent(new Event("end"));
  }

  async #once(body) {
    const message = this.message;
    let finish = "";
    for await (const event of this.#api.stream("v1/chat/completions", { body, signal: this.#abort.signal })) {
      if (event.data === undefined) continue;
      if (event.data === "[DONE]") break;
      const chunk = JSON.parse(event.data);
      if (chunk.error)
        throw new ApiError(statusOf(chunk.error), chunk.error.message, {
          code: chunk.error.code ?? "",
          type: chunk.error.type,
        });
      const told = take(chunk, message, Date.now());
      if (told.finish) finish = told.finish;
      if (told.progress) {
        this.progress = told.progress;
        if (!this.#begun()) this.#now("reading");
      }
      if (this.#begun()) this.#now("answering");
    }
    if (!finish) throw new ApiError(0, "The answer broke off.", { code: "broken" });
    message.state = finish === "length" ? "length" : "done";
  }

  #begun() {
    const { content, reasoning, calls } = this.message;
    return Boolean(content || reasoning || calls.length);
  }

  #now(phase) {
    this.phase = phase;
    this.dispatchEvent(new Event("update"));
  }

  /** Whether asking again by itself is right: nothing has come, and it is a matter of time. */
  #mayWait(error, attempt) {
    if (this.#begun()) return false;
    if (error.status === 429) return attempt < 20;
    if (error.status === 503) return !["out_of_memory", "not_ready"].includes(error.code);
    return error.code === "unreachable";
  }

  async #wait(error, attempt) {
    this.hold = error;
    this.#now("held");
    const signal = this.#abort.signal;
    if (error.status === 429) {
      await sleep(Math.max(error.retry ?? 1, Math.min(1.5 ** attempt, 15)) * 1000, signal);
    } else {
      await sleep((error.retry ?? 1) * 1000, signal);
      await this.#health.check();
      while (!this.#health.ready && this.#health.state !== "failed" && !signal.aborted) await sleep(500, signal);
    }
    this.hold = null;
  }
}

/** Errors in a stream have no status; their code says what they are. */
function statusOf({ code, type }) {
  if (code === "out_of_memory" || code === "shutdown" || code === "not_ready") return 503;
  if (code === "engine_hung") return 504;
  if (type === "invalid_request_error") return 400;
  return 500;
}
