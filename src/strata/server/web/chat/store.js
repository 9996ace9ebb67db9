// Chats in the browser's own database. What cannot be written is kept in memory, tried again with the next writing, and
// said: `fault` is null, "unavailable" (no database, as in some private windows) or "full".

const NAME = "strata";

/** Dispatches "fault" when `fault` changes, and "other" with a chat's id when another browser tab wrote. */
export class Store extends EventTarget {
  fault = null;
  #database = null;
  #unsaved = new Map(); // "store/id" to the record, or null for one to be deleted
  #channel = null;
  #writing = Promise.resolve();

  async open() {
    try {
      this.#database = await opened();
      this.#database.onversionchange = () => this.#database.close();
    } catch {
      this.#say("unavailable");
    }
    try {
      this.#channel = new BroadcastChannel("strata.chats");
      this.#channel.onmessage = ({ data }) => this.dispatchEvent(new CustomEvent("other", { detail: data }));
    } catch {
      // then tabs do not hear of each other
    }
    return this;
  }

  /** All chats, the one that was used last first. */
  async chats() {
    const found = await this.#read((database) => database.transaction("chats").objectStore("chats").getAll());
    return this.#with("chats", found).sort((a, b) => b.updated - a.updated);
  }

  /** The messages of a chat, in no order. */
  async messages(chat) {
    const found = await this.#read((database) =>
      database.transaction("messages").objectStore("messages").index("chat").getAll(chat),
    );
    return this.#with("messages", found).filter((message) => message.chat === chat);
  }

  /** Write records, and forget others; never fails, see `fault`. */
  put(chat, messages = [], gone = []) {
    this.#unsaved.set(`chats/${chat.id}`, structuredClone(chat));
    for (const message of messages) this.#unsaved.set(`messages/${message.id}`, structuredClone(message));
    for (const message of gone) this.#unsaved.set(`messages/${message.id}`, null);
    return this.#flush(chat.id);
  }

  /** Forget a chat and its messages, which `messages` gave. */
  remove(chat, messages) {
    this.#unsaved.set(`chats/${chat.id}`, null);
    for (const message of messages) this.#unsaved.set(`messages/${message.id}`, null);
    return this.#flush(chat.id);
  }

  #flush(id) {
    this.#writing = this.#writing.then(() => this.#write()).then(() => this.#channel?.postMessage(id));
    return this.#writing;
  }

  async #write() {
    const waiting = new Map(this.#unsaved);
    if (!this.#database || !waiting.size) return;
    try {
      await new Promise((resolve, reject) => {
        const transaction = this.#database.transaction(["chats", "messages"], "readwrite");
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error ?? new Error("aborted"));
        for (const [key, record] of waiting) {
          const [store, ...rest] = key.split("/");
          if (record === null) transaction.objectStore(store).delete(rest.join("/"));
          else transaction.objectStore(store).put(record);
        }
      });
    } catch (error) {
      this.#say(error?.name === "QuotaExceededError" ? "full" : "unavailable");
      return;
    }
    for (const [key, record] of waiting) if (this.#unsaved.get(key) === record) this.#unsaved.delete(key);
    this.#say(null);
  }

  async #read(request) {
    if (!this.#database) return [];
    try {
      return await promised(request(this.#database));
    } catch {
      this.#say("unavailable");
      return [];
    }
  }

  /** What is stored, with what is not yet. */
  #with(store, found) {
    const all = new Map(found.map((record) => [record.id, record]));
    for (const [key, record] of this.#unsaved) {
      if (!key.startsWith(`${store}/`)) continue;
      const id = key.slice(store.length + 1);
      if (record === null) all.delete(id);
      else all.set(id, structuredClone(record));
    }
    return [...all.values()];
  }

  #say(fault) {
    if (fault === this.fault) return;
    this.fault = fault;
    this.dispatchEvent(new Event("fault"));
  }
}

function opened() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("chats", { keyPath: "id" });
    request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("chat", "chat");
  };
  return promised(request);
}

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
}

/** A name that no other record has; crypto.randomUUID is missing on plain http from other machines. */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
