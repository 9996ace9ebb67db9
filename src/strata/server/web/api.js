// Talking to the server: the key, errors with what to do, and server-sent events.

export class ApiError extends Error {
  /** @param {number} status of HTTP; 0 if nobody answered */
  constructor(status, message, { code = "", type = "", param = "", retry = null } = {}) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, code, type, param, retry });
  }
}

/** The address of a route, also where the server lies behind a prefix of another one. */
export function address(path) {
  return new URL(path.replace(/^\//, ""), new URL(".", document.baseURI)).href;
}

export class Api {
  #keys;

  /** @param keys  what `keys.js` makes: `current`, and `demand(rejected)` which asks the person */
  constructor(keys) {
    this.#keys = keys;
  }

  /**
   * A response with status 2xx.
   *
   * Where a key is needed, the person is asked, and the request sent again. `quiet` leaves that out: for what happens
   * in the background.
   * @param {string} path
   * @param {{method?: string, body?: object, signal?: AbortSignal, quiet?: boolean}} [options]
   * @throws {ApiError}; an aborted request throws what `signal` says
   */
  async request(path, { method, body, signal, quiet = false } = {}) {
    for (;;) {
      const key = this.#keys.current;
      const headers = {};
      if (key) headers.authorization = `Bearer ${binary(key)}`;
      if (body !== undefined) headers["content-type"] = "application/json";
      let response;
      try {
        response = await fetch(address(path), {
          method: method ?? (body === undefined ? "GET" : "POST"),
          headers,
          signal,
          cache: "no-store",
          referrerPolicy: "no-referrer",
          body: body === undefined ? undefined : JSON.stringify(body),
        });
      } catch (error) {
        signal?.throwIfAborted();
        throw new ApiError(0, "The server does not answer.", { code: "unreachable" });
      }
      if (response.ok) return response;
      const error = await failure(response);
      if (response.status !== 401 || quiet) throw error;
      if (this.#keys.current === key && !(await this.#keys.demand(key))) throw error;
      signal?.throwIfAborted();
    }
  }

  /** The value of a JSON answer. */
  async json(path, options) {
    const response = await this.request(path, options);
    try {
      return await response.json();
    } catch (error) {
      options?.signal?.throwIfAborted();
      throw new ApiError(0, "The server's answer broke off.", { code: "broken" });
    }
  }

  /**
   * The events of a stream, as `{event, data}` with `data` still text; comments come as `{comment}`.
   * Ends when the server ends it; a connection that breaks is an ApiError.
   */
  async *stream(path, options) {
    const response = await this.request(path, options);
    yield* events(response.body, options?.signal);
  }

  /**
   * Follow a stream without end: it is opened again after every break, later and later.
   * @param {string} path
   * @param {{signal: AbortSignal, message: (one: {event: string, data: string}) => void,
   *   state?: (name: "open"|"waiting"|"denied", error?: ApiError) => void}} options
   *   "denied" is a missing key or a route that is not there: it is tried again only by another call
   * @returns when it was aborted or denied
   */
  async follow(path, { signal, message, state = () => {} }) {
    let pause = 500;
    while (!signal.aborted) {
      let error;
      try {
        const response = await this.request(path, { signal });
        state("open");
        for await (const one of events(response.body, signal)) {
          pause = 500;
          if (one.data !== undefined) message(one);
        }
      } catch (thrown) {
        if (signal.aborted) return;
        if (!(thrown instanceof ApiError)) throw thrown;
        error = thrown;
      }
      if (error && error.status >= 400 && error.status < 500 && error.status !== 429) {
        state("denied", error);
        return;
      }
      state("waiting", error);
      await sleep(error?.retry ? error.retry * 1000 : pause, signal);
      pause = Math.min(pause * 1.7, 10_000);
    }
  }
}

/** Wait; an abort ends it early and without an error. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
  });
}

/** A text as the bytes of its UTF-8, one character for each: headers can have no others. */
function binary(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function failure(response) {
  const retry = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  const told = { retry: Number.isFinite(retry) ? retry : null };
  let message = `The server answered with status ${response.status}.`;
  try {
    const { error } = await response.json();
    message = error.message || message;
    Object.assign(told, { code: error.code ?? "", type: error.type ?? "", param: error.param ?? "" });
  } catch {
    // not ours: something between here and the server answered
  }
  return new ApiError(response.status, message, told);
}

async function* events(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  let event = "";
  let lines = [];
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch {
        signal?.throwIfAborted();
        throw new ApiError(0, "The connection to the server broke.", { code: "broken" });
      }
      if (part.done) return;
      const text = waiting + part.value;
      const cut = text.lastIndexOf("\n") + 1;
      waiting = text.slice(cut);
      for (const raw of text.slice(0, cut).split("\n").slice(0, -1)) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line === "") {
          if (lines.length) yield { event: event || "message", data: lines.join("\n") };
          event = "";
          lines = [];
        } else if (line.startsWith(":")) {
          yield { comment: line.slice(1).trim() };
        } else {
          const [name, ...rest] = line.split(":");
          const value = rest.join(":").replace(/^ /, "");
          if (name === "data") lines.push(value);
          else if (name === "event") event = value;
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // a reader that leaves ends the server's work
  }
}
