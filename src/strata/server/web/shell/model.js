// What is served: names, and what the chosen model takes; asked for once the server is ready.

import { ApiError } from "../api.js";

/**
 * Dispatches "change" when it knows more. Until then `names` and `name` are empty and `props` is null.
 *
 * `name` is the model that is looked at: the first, until `choose` says another one.
 */
export class Model extends EventTarget {
  names = [];
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
    this.#loading ??= this.#load().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  /** Look at this model, if there is one of that name. */
  choose(name) {
    if (name === this.name || !this.names.includes(name)) return;
    this.name = name;
    this.props = null;
    this.dispatchEvent(new Event("change"));
    this.load();
  }

  async #load() {
    try {
      const { data } = await this.#api.json("v1/models");
      this.names = data.map((one) => one.id);
      if (!this.names.includes(this.name)) this.name = this.names[0] ?? "";
      const name = this.name;
      const props = await this.#api.json(this.names.length > 1 ? `props?model=${encodeURIComponent(name)}` : "props");
      if (name !== this.name) return this.#load(); // another was chosen meanwhile
      this.props = props;
      this.error = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.error = error;
    }
    this.dispatchEvent(new Event("change"));
    return this.props;
  }
}
