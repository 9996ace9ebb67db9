// What this browser tab remembers through a reload: which chat it shows, and messages that were not sent yet.

const CURRENT = "strata.chat";
const DRAFTS = "strata.drafts";

export class Remembered {
  #drafts = new Map(Object.entries(read(DRAFTS) ?? {}));

  /** The name of the chat that is shown. */
  get chat() {
    return read(CURRENT);
  }

  set chat(id) {
    write(CURRENT, id);
  }

  /** The message that was begun in a chat. */
  draft(chat) {
    return this.#drafts.get(chat) ?? "";
  }

  keep(chat, text) {
    if (text) this.#drafts.set(chat, text);
    else this.#drafts.delete(chat);
    write(DRAFTS, Object.fromEntries(this.#drafts));
  }
}

function write(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // no storage: a reload begins with a new chat
  }
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}
