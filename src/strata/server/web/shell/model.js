// What is served: its name and what it takes, asked for once the server is ready.

import { ApiError } from "../api.js";

/** Dispatches "change" when it knows more. `name` is empty and `props` null until then. */
export class Model extends EventTarget {
  name = "";
  props = null;
  error = null;
  #api;
  #loading = null;

  constructor(api) {
    super();
    this.#api = api;
  }

  /** Ask again. @returns {Promise<object|null>} what `/props` says */
  load() {
    this.#loading ??= this.#load().finally(() => { this.#loading = null; });
    return this.#loading;
  }

  async #load() {
    try {
      this.props = await this.#api.json("props");
      this.name = this.props.model_alias ?? "";
      this.error = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.error = error;
    }
    this.dispatchEvent(new Event("change"));
    return this.props;
  }
}
