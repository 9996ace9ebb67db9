// All chats and the answers under way; what the view shows and the store keeps.

import { bodyOf } from "./request.js";
import { Run } from "./run.js";
import { EMPTY, settingsFrom } from "./settings.js";
import { newId } from "./store.js";
import { pathOf, pick, titleOf } from "./tree.js";

const SAVE = 1000; // milliseconds between two writings of an answer under way

const LOCK = "strata.answer/"; // held while an answer is under way, so that other tabs know

/** Do something with a lock that other tabs can see, where there are such locks. */
function locked(id, work) {
  return navigator.locks ? navigator.locks.request(LOCK + id, work) : work();
}

/** Messages that some tab is writing; one that was closed in the middle of an answer holds nothing. */
async function underWay() {
  const held = navigator.locks ? (await navigator.locks.query()).held : [];
  return new Set(held.filter(({ name }) => name.startsWith(LOCK)).map(({ name }) => name.slice(LOCK.length)));
}

/**
 * Dispatches "list" (chats, their order or what is under way), "path" (the messages of the current chat), "message"
 * (detail: one that changed) and "gone" (the current chat was deleted in another tab).
 */
export class Chats extends EventTarget {
  list = [];
  chat = null; // the current one; a new one is not in the list before its first message
  nodes = []; // its messages
  runs = new Map(); // message id to Run, of all chats
  #store;
  #context;

  constructor(store, context) {
    super();
    this.#store = store;
    this.#context = context;
    store.addEventListener("other", ({ detail }) => this.#reread(detail));
  }

  /** Read the list, and begin a new chat or go on with the one named. */
  async start(id) {
    this.list = await this.#store.chats();
    this.list.forEach((chat) => {
      chat.settings = settingsFrom(chat.settings);
    });
    if (!id || !(await this.open(id))) this.fresh();
    this.#say("list");
  }

  get path() {
    return pathOf(this.nodes, this.chat.picks);
  }

  /** The answer under way in the current chat. */
  get running() {
    return [...this.runs.values()].find((run) => run.message.chat === this.chat.id) ?? null;
  }

  /** Chats with an answer under way. */
  get busy() {
    return new Set([...this.runs.values()].map((run) => run.message.chat));
  }

  /** A new chat, with the settings of the one before. */
  fresh() {
    const settings = this.chat?.settings ?? this.list[0]?.settings ?? EMPTY;
    const now = Date.now();
    this.chat = { id: newId(), title: "", created: now, updated: now, picks: {}, settings: structuredClone(settings) };
    this.nodes = [];
    this.#say("path");
    this.#say("list");
  }

  /** Go to a chat. @returns {Promise<boolean>} whether there is one */
  async open(id) {
    const chat = this.list.find((one) => one.id === id);
    if (!chat) return false;
    const nodes = await this.#store.messages(id);
    const elsewhere = nodes.some(({ state }) => state === "running") ? await underWay() : new Set();
    for (const node of nodes) {
      const run = this.runs.get(node.id);
      if (run) Object.assign(node, run.message);
      else if (node.state === "running") node.state = elsewhere.has(node.id) ? "elsewhere" : "stopped";
    }
    this.chat = chat;
    this.nodes = nodes.map((node) => this.runs.get(node.id)?.message ?? node);
    this.#say("path");
    this.#say("list");
    return true;
  }

  /** Ask something at the end of the current path. */
  send(text) {
    return this.#ask(this.path.at(-1)?.id ?? null, text);
  }

  /** Ask something else instead. */
  edit(question, text) {
    return this.#ask(question.parent, text);
  }

  /** Have another answer to the same. One that came to nothing is not kept beside it. */
  retry(answer) {
    this.#stopHere();
    if (answer.state === "failed" && !answer.content && !answer.reasoning && !answer.calls.length) {
      this.nodes = this.nodes.filter((node) => node !== answer);
      this.#store.put(this.chat, [], [answer]);
    }
    return this.#answer(answer.parent);
  }

  /** Have an answer that was cut go on. */
  resume(answer) {
    this.#stopHere();
    Object.assign(answer, { state: "running", error: null });
    const before = answer.usage?.answer ?? 0;
    return this.#run(answer, this.path).then(() => {
      if (answer.usage) answer.usage.answer += before; // the answer is both parts
      this.#save([answer]);
      return answer;
    });
  }

  /** Give results to calls. @param {{call: object, content: string}[]} results */
  async answer(message, results) {
    let parent = message.id;
    const made = results.map(({ call, content }, place) => {
      const one = {
        id: newId(),
        chat: this.chat.id,
        parent,
        role: "tool",
        call: call.id,
        name: call.name,
        content,
        created: Date.now() + place,
      };
      parent = one.id;
      return one;
    });
    this.nodes.push(...made);
    for (const one of made) this.chat.picks = pick(this.chat.picks, one);
    await this.#save(made);
    return this.#answer(parent);
  }

  /** Show this version of a message. */
  show(node) {
    this.chat.picks = pick(this.chat.picks, node);
    if (this.list.includes(this.chat)) this.#save([]);
    this.#say("path");
  }

  /** Change something of the current chat. */
  change(part) {
    Object.assign(this.chat, part);
    if (this.list.includes(this.chat)) this.#store.put(this.chat);
    this.#say("list");
  }

  /** Forget the current chat. @returns {Promise<() => void>} takes it back */
  async remove() {
    const { chat } = this;
    this.#stopHere();
    const nodes = await this.#store.messages(chat.id);
    this.list = this.list.filter((one) => one !== chat);
    this.#store.remove(chat, nodes);
    this.fresh();
    return () => this.add([{ chat, messages: nodes }]);
  }

  /** Take chats from elsewhere; the last of them is opened. */
  async add(entries) {
    for (const { chat, messages } of entries) {
      this.list = [chat, ...this.list.filter((one) => one.id !== chat.id)];
      await this.#store.put(chat, messages);
    }
    this.list.sort((a, b) => b.updated - a.updated);
    if (entries.length) await this.open(entries.at(-1).chat.id);
  }

  /** All chats with their messages. */
  async everything() {
    return Promise.all(this.list.map(async (chat) => ({ chat, messages: await this.#store.messages(chat.id) })));
  }

  async #ask(parent, text) {
    this.#stopHere();
    const question = { id: newId(), chat: this.chat.id, parent, role: "user", content: text, created: Date.now() };
    this.nodes.push(question);
    this.chat.picks = pick(this.chat.picks, question);
    if (!this.chat.title) this.chat.title = titleOf(text);
    await this.#save([question]);
    return this.#answer(question.id);
  }

  #answer(parent) {
    const answer = {
      id: newId(),
      chat: this.chat.id,
      parent,
      role: "assistant",
      content: "",
      reasoning: "",
      thought: null,
      calls: [],
      created: Date.now(),
      state: "running",
      error: null,
      usage: null,
      speed: null,
    };
    this.nodes.push(answer);
    this.chat.picks = pick(this.chat.picks, answer);
    const path = this.path;
    return this.#run(answer, path.slice(0, path.indexOf(answer)));
  }

  async #run(message, path) {
    const { chat } = this;
    const run = new Run(this.#context.api, this.#context.health, message);
    let saved = Date.now();
    run.addEventListener("update", () => {
      if (this.chat === chat) this.dispatchEvent(new CustomEvent("message", { detail: message }));
      if (Date.now() - saved > SAVE && run.phase === "answering") {
        saved = Date.now();
        this.#store.put(chat, [message]);
      }
    });
    let body;
    try {
      body = bodyOf(path, chat.settings, this.#context.model.name);
    } catch (error) {
      // the tools are not JSON
      Object.assign(message, { state: "failed", error: { status: 400, code: "tools", message: error.message } });
    }
    if (body) {
      this.runs.set(message.id, run);
      await this.#save([message]);
      this.#say("path");
      this.#say("list");
      await locked(message.id, () => run.start(body));
      this.runs.delete(message.id);
    }
    chat.updated = Date.now();
    this.list.sort((a, b) => b.updated - a.updated);
    await this.#store.put(chat, [message]);
    if (this.chat === chat) this.#say("path");
    this.#say("list");
    return message;
  }

  #save(changed) {
    // A chat that is not in the list is new, or was deleted in another tab and comes back whole.
    const messages = this.list.includes(this.chat) ? changed : this.nodes;
    if (messages !== changed) this.list.unshift(this.chat);
    this.chat.updated = Date.now();
    this.list.sort((a, b) => b.updated - a.updated);
    this.#say("path");
    return this.#store.put(this.chat, messages);
  }

  /** One answer at a time in one chat. */
  #stopHere() {
    this.running?.stop();
  }

  async #reread(id) {
    if (!this.chat) return;
    const before = new Map(this.list.map((chat) => [chat.id, chat]));
    const list = await this.#store.chats();
    this.list = list.map((chat) => {
      chat.settings = settingsFrom(chat.settings);
      return before.has(chat.id) ? Object.assign(before.get(chat.id), chat) : chat;
    });
    if (this.chat.id === id && !this.running && this.list.includes(this.chat)) await this.open(id);
    if (this.chat.id === id && before.has(id) && !this.list.includes(this.chat)) this.#say("gone");
    this.#say("list");
  }

  #say(name) {
    this.dispatchEvent(new Event(name));
  }
}
