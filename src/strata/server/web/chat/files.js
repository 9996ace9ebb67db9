// Chats as files: Markdown to read, JSON to come back.

import { settingsFrom } from "./settings.js";
import { newId } from "./store.js";
import { titleOf } from "./tree.js";

const LARGEST = 64 << 20;

/** One conversation, as it is shown, to be read by people. */
export function toMarkdown(chat, path) {
  const parts = [`# ${chat.title}`];
  if (chat.settings.system.trim()) parts.push(`## System\n\n${chat.settings.system.trim()}`);
  for (const one of path) {
    if (one.role === "user") parts.push(`## You\n\n${one.content}`);
    else if (one.role === "tool") parts.push(`### Result of \`${one.name}\`\n\n${fenced(one.content)}`);
    else
      parts.push(
        [
          "## Answer",
          one.reasoning && `<details><summary>Thoughts</summary>\n\n${one.reasoning.trim()}\n\n</details>`,
          one.content.trim(),
          ...one.calls.map((call) => `Called \`${call.name}\`:\n\n${fenced(call.arguments, "json")}`),
        ]
          .filter(Boolean)
          .join("\n\n"),
      );
  }
  return `${parts.join("\n\n")}\n`;
}

/** A block of code that nothing in the text ends. */
export function fenced(text, word = "") {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${word}\n${text}\n${fence}`;
}

/** Chats with everything that belongs to them. @param {{chat: object, messages: object[]}[]} entries */
export function toJson(entries) {
  return `${JSON.stringify({ format: "strata-chats", version: 1, chats: entries }, null, 1)}\n`;
}

/** Hand a text to the browser as a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A title as a file's name. */
export function fileName(title, ending) {
  const name = title
    .normalize("NFKD")
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60)
    .toLowerCase();
  return `${name || "chat"}.${ending}`;
}

/**
 * Chats of a file: our own, or a list of messages as OpenAI's clients write it. Everything gets new names, so that
 * nothing that is there is replaced.
 * @returns {Promise<{chat: object, messages: object[]}[]>}
 * @throws {Error} says what is wrong with the file
 */
export async function fromFile(file) {
  if (file.size > LARGEST) throw new Error(`The file is larger than ${LARGEST >> 20} MB.`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error("The file is not JSON. Chats are imported from the JSON files that this page exports.");
  }
  if (value?.format === "strata-chats") {
    if (value.version !== 1)
      throw new Error(`The file has version ${String(value.version).slice(0, 20)}; this page knows version 1.`);
    if (!Array.isArray(value.chats)) throw new Error("The file has no list of chats.");
    return value.chats.map(renamed);
  }
  const list = Array.isArray(value) ? value : value?.messages;
  if (!Array.isArray(list)) throw new Error("The file holds no chats and no messages.");
  return [fromMessages(list)];
}

function renamed(entry) {
  const chat = { id: newId(), ...chatFrom(entry?.chat) };
  const given = Array.isArray(entry?.messages) ? entry.messages : [];
  const names = new Map(given.map((one) => [one?.id, newId()]));
  const messages = given
    .map((one) => messageFrom(one, chat.id, names.get(one?.id), names.get(one?.parent) ?? null))
    .filter(Boolean);
  const picks = Object.entries(entry?.chat?.picks ?? {}).map(([parent, child]) => [
    parent ? names.get(parent) : "",
    names.get(child),
  ]);
  chat.picks = Object.fromEntries(picks.filter(([parent, child]) => parent !== undefined && child));
  return { chat, messages };
}

function chatFrom(given) {
  const now = Date.now();
  const time = (value) => (Number.isFinite(value) && value > 0 && value <= now ? value : now);
  return {
    title: text(given?.title).slice(0, 200) || "Imported chat",
    created: time(given?.created),
    updated: time(given?.updated),
    picks: {},
    settings: settingsFrom(given?.settings),
  };
}

function messageFrom(one, chat, id, parent) {
  const base = {
    id,
    chat,
    parent,
    created: Number.isFinite(one?.created) ? one.created : Date.now(),
    content: text(one?.content),
  };
  if (one?.role === "user") return { ...base, role: "user" };
  if (one?.role === "tool") return { ...base, role: "tool", call: text(one.call), name: text(one.name) };
  if (one?.role !== "assistant") return null;
  const states = ["done", "length", "stopped", "failed"];
  return {
    ...base,
    role: "assistant",
    reasoning: text(one.reasoning),
    thought: Number.isFinite(one.thought) ? one.thought : null,
    calls: (Array.isArray(one.calls) ? one.calls : []).map((call) => ({
      id: text(call?.id),
      type: call?.type === "custom" ? "custom" : "function",
      name: text(call?.name),
      arguments: text(call?.arguments),
    })),
    state: states.includes(one.state) ? one.state : "done",
    error: null,
    usage: usageFrom(one.usage),
    speed: Number.isFinite(one.speed) ? one.speed : null,
  };
}

function usageFrom(given) {
  const names = ["prompt", "answer", "cached", "thought"];
  return given && names.every((name) => Number.isFinite(given[name]))
    ? Object.fromEntries(names.map((name) => [name, given[name]]))
    : null;
}

/** A plain list of messages becomes one branch. */
function fromMessages(list) {
  const id = newId();
  const messages = [];
  const names = new Map(); // of calls, by id
  let system = "";
  let created = Date.now() - list.length;
  for (const one of list) {
    const content = Array.isArray(one?.content)
      ? one.content.map((part) => text(part?.text)).join("")
      : text(one?.content);
    if (one?.role === "system" || one?.role === "developer") {
      system += (system && "\n\n") + content;
      continue;
    }
    const calls = (Array.isArray(one?.tool_calls) ? one.tool_calls : []).map((call) => ({
      id: text(call?.id),
      name: text(call?.function?.name),
      arguments: text(call?.function?.arguments),
    }));
    for (const call of calls) names.set(call.id, call.name);
    created += 1;
    const message = messageFrom(
      {
        role: one?.role,
        content,
        created,
        reasoning: one?.reasoning_content,
        calls,
        call: one?.tool_call_id,
        name: names.get(one?.tool_call_id) ?? "tool",
      },
      id,
      newId(),
      messages.at(-1)?.id ?? null,
    );
    if (message) messages.push(message);
  }
  if (!messages.length) throw new Error("The file holds no messages of a user or an assistant.");
  const first = messages.find((message) => message.role === "user");
  return {
    chat: { id, ...chatFrom({ title: titleOf(first?.content ?? "") }), settings: settingsFrom({ system }) },
    messages,
  };
}

function text(value) {
  return typeof value === "string" ? value : "";
}
