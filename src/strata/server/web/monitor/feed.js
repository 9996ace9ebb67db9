// Snapshots as they come, and what is remembered of the last minutes. Nothing is asked for while nobody looks.

/** Seconds that are remembered. */
export const SPAN = 300;

/**
 * Dispatches "snapshot" for each, and "state" when `state` is another one: "stopped", "waiting", "open" or "denied";
 * `error` says why.
 */
export class Feed extends EventTarget {
  latest = null;
  history = [];  // {t, engines: Map(model to numbers)}, oldest first
  state = "stopped";
  error = null;
  #api;
  #abort = null;

  constructor(api) {
    super();
    this.#api = api;
  }

  start() {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#set("waiting");
    const { signal } = this.#abort;
    this.#api.follow("v1/strata/events", {
      signal,
      message: ({ data }) => { if (!signal.aborted) this.#take(JSON.parse(data)); },
      state: (name, error) => { if (!signal.aborted) this.#set(name, error); },
    }).finally(() => { if (this.#abort?.signal === signal) this.#abort = null; });
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
    this.#set("stopped");
  }

  #set(state, error = null) {
    this.state = state;
    this.error = error;
    this.dispatchEvent(new Event("state"));
  }

  #take(snapshot) {
    if (this.state !== "open") this.#set("open");
    if (snapshot.time <= this.history.at(-1)?.t) this.history = [];  // another server, or a clock that was set back
    this.latest = snapshot;
    this.history.push({
      t: snapshot.time,
      engines: new Map(snapshot.engines.map((one) => [one.model, [one.speed.answer, one.speed.prompt, one.running, one.waiting]])),
    });
    const first = this.history.findIndex((one) => one.t >= snapshot.time - SPAN - 5);
    if (first > 0) this.history.splice(0, first);
    this.dispatchEvent(new Event("snapshot"));
  }

  /** The numbers of an engine over time: which of [answer, prompt, running, waiting]. */
  series(model, which) {
    return this.history.filter((one) => one.engines.has(model))
      .map((one) => ({ t: one.t, values: which.map((i) => one.engines.get(model)[i]) }));
  }
}
