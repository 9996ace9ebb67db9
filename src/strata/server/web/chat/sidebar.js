// The list of chats.

import { fill, h, icon, iconButton, uid } from "../dom.js";

const DAY = 86_400_000;

export class Sidebar {
  /** @param {{open: (id) => void, fresh: () => void, exportAll: () => void, importFile: (file: File) => void, close: () => void}} does */
  constructor(does) {
    this.does = does;
    this.chats = [];
    this.words = "";
    const search = uid("search");
    this.search = h("input.input", {
      id: search,
      type: "search",
      placeholder: "Search titles",
      "aria-label": "Search titles",
      on: {
        input: () => {
          this.words = this.search.value.trim().toLowerCase();
          this.#list();
        },
      },
    });
    this.list = h("nav.chat-list", { "aria-label": "Chats" });
    this.fault = h("div");
    const file = h("input", {
      type: "file",
      accept: ".json,application/json",
      hidden: true,
      "aria-label": "File with chats",
      on: {
        change: () => {
          if (file.files[0]) does.importFile(file.files[0]);
          file.value = "";
        },
      },
    });
    this.element = h(
      "aside.sidebar",
      { "aria-label": "Your chats" },
      h(
        "div.side-head",
        {},
        h("button.button.new", { type: "button", on: { click: does.fresh } }, icon("plus"), "New chat"),
        iconButton("close", "Close the list", does.close, { class: "only-narrow" }),
      ),
      this.search,
      this.list,
      this.fault,
      h(
        "div.side-foot",
        {},
        h("button.button.plain.small", { type: "button", on: { click: () => file.click() } }, icon("upload"), "Import"),
        h(
          "button.button.plain.small",
          { type: "button", on: { click: does.exportAll } },
          icon("download"),
          "Export all",
        ),
        file,
      ),
    );
  }

  /** @param {object[]} chats newest first @param {string|null} current @param {Set<string>} busy */
  show(chats, current, busy) {
    Object.assign(this, { chats, current, busy });
    this.search.hidden = chats.length < 8 && !this.words;
    this.#list();
  }

  /** Say that chats are not being kept. */
  warn(fault) {
    fill(
      this.fault,
      fault &&
        h(
          "div.notice.warn",
          {},
          icon("alert"),
          h(
            "div.grow.small",
            {},
            h("strong", {}, fault === "full" ? "The browser's storage is full." : "The browser keeps nothing here."),
            fault === "full"
              ? " What is new is lost when this page closes. Export your chats, and delete some."
              : " Chats are lost when this page closes; export what you want to keep.",
          ),
        ),
    );
  }

  #list() {
    const focused = document.activeElement?.dataset?.chat;
    const groups = new Map();
    for (const chat of this.chats) {
      if (this.words && !chat.title.toLowerCase().includes(this.words)) continue;
      const name = ageOf(chat.updated);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(chat);
    }
    fill(
      this.list,
      groups.size
        ? [...groups].map(([name, chats]) => [
            h("h2.group", {}, name),
            h(
              "ul",
              {},
              chats.map((chat) =>
                h(
                  "li",
                  {},
                  h(
                    "button.chat-item",
                    {
                      type: "button",
                      data: { chat: chat.id },
                      "aria-current": chat.id === this.current ? "true" : null,
                      on: { click: () => this.does.open(chat.id) },
                    },
                    h("span.chat-title", {}, chat.title || "New chat"),
                    this.busy.has(chat.id) && h("span.busy", { title: "Answering" }, h("span.unseen", {}, "answering")),
                  ),
                ),
              ),
            ),
          ])
        : h(
            "p.quiet.small.none",
            {},
            this.words ? "No title has these words." : "Your chats will be listed here. They stay in this browser.",
          ),
    );
    if (focused) this.list.querySelector(`[data-chat="${focused}"]`)?.focus();
  }
}

function ageOf(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - DAY) return "Yesterday";
  if (time >= today - 7 * DAY) return "The last week";
  return new Date(time).toLocaleDateString("en", { month: "long", year: "numeric" });
}
