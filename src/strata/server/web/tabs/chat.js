// The chat: a list of chats, the messages of one, a place to write, and settings.

import { fill, h, iconButton } from "../dom.js";
import { Chats } from "../chat/chats.js";
import { Composer } from "../chat/composer.js";
import { download, fileName, fromFile, toJson, toMarkdown } from "../chat/files.js";
import { menuButton } from "../chat/menu.js";
import { Panel } from "../chat/panel.js";
import { Drawer } from "../chat/drawer.js";
import { Remembered } from "../chat/remembered.js";
import { rename } from "../chat/rename.js";
import { changed } from "../chat/settings.js";
import { Sidebar } from "../chat/sidebar.js";
import { Store } from "../chat/store.js";
import { readTools } from "../chat/tools.js";
import { Transcript } from "../chat/transcript.js";
import { welcome } from "../chat/welcome.js";

export async function mount(element, context) {
  const { announce, toast, health, model, keys } = context;
  const store = await new Store().open();
  const chats = new Chats(store, context);
  const remembered = new Remembered();

  const sidebar = new Sidebar({
    open: (id) => {
      chats.open(id);
      left.uncover();
    },
    fresh: () => {
      chats.fresh();
      left.uncover();
      composer.focus();
    },
    exportAll: async () => download("strata-chats.json", toJson(await chats.everything()), "application/json"),
    importFile: async (file) => {
      try {
        const entries = await fromFile(file);
        await chats.add(entries);
        toast(`Imported ${entries.length} chat${entries.length === 1 ? "" : "s"}.`);
      } catch (error) {
        toast(error.message);
      }
    },
    close: () => left.close(),
  });
  const panel = new Panel(
    (settings) => {
      chats.change({ settings });
      showComposer();
    },
    () => model.props?.default_generation_settings?.params ?? {},
    () => right.close(),
  );
  const transcript = new Transcript({
    edit: (message, text) => ask(chats.edit(message, text)),
    retry: (message) => ask(chats.retry(message)),
    resume: (message) => ask(chats.resume(message)),
    answer: (message, results) => ask(chats.answer(message, results)),
    again: async (message, action) => {
      if (action === "key" && !(await keys.demand(keys.current))) return;
      ask(chats.retry(message));
    },
    show: (message, side) => {
      chats.show(message);
      transcript
        .view(message.id)
        ?.element.querySelector(
          `[aria-label="${side === "left" ? "Version before" : "Next version"}"]:not(:disabled), .branches button:not(:disabled)`,
        )
        ?.focus();
    },
  });
  const composer = new Composer({
    send: (text) => {
      if (chats.running) return;
      composer.text = "";
      remembered.keep(chats.chat.id, "");
      transcript.toEnd();
      ask(chats.send(text));
    },
    stop: () => stop(),
    effort: (effort) => {
      chats.change({ settings: { ...chats.chat.settings, effort } });
      panel.show(chats.chat.settings);
    },
    model: (name) => {
      model.choose(name);
      chats.change({ settings: { ...chats.chat.settings, model: name } });
      panel.show(chats.chat.settings);
    },
    tools: () => {
      right.open();
      panel.focusTools();
    },
    typed: (text) => remembered.keep(chats.chat.id, text),
    refused: (why) => toast(why),
    last: () => {
      const question = chats.path.findLast((message) => message.role === "user");
      if (question) transcript.view(question.id)?.edit();
    },
  });

  const title = h("h1.chat-name");
  const settings = iconButton("sliders", "Settings of this chat", () => right.toggle(), { "aria-expanded": "false" });
  const list = iconButton("list", "Your chats", () => left.toggle(), { "aria-expanded": "true" });
  const fresh = iconButton(
    "plus",
    "New chat",
    () => {
      chats.fresh();
      composer.focus();
    },
    { class: "fresh" },
  );
  const menu = menuButton("Actions on this chat", [
    [
      "edit",
      "Rename",
      () =>
        rename(
          title,
          chats.chat.title,
          (text) => chats.change({ title: text }),
          () => composer.focus(),
        ),
    ],
    [
      "copy",
      "Export as Markdown",
      () => download(fileName(chats.chat.title, "md"), toMarkdown(chats.chat, chats.path), "text/markdown"),
    ],
    [
      "download",
      "Export as JSON",
      () =>
        download(
          fileName(chats.chat.title, "json"),
          toJson([{ chat: chats.chat, messages: chats.nodes }]),
          "application/json",
        ),
    ],
    ["trash", "Delete", () => remove()],
  ]);
  const middle = h(
    "div.talk",
    {},
    h("header.chat-head", {}, list, title, h("span.grow"), fresh, settings, menu),
    transcript.element,
    h("div.dock", {}, h("div.column", {}, transcript.jump, composer.element)),
  );
  const layout = h("div.chat", {}, middle);
  const left = new Drawer(layout, sidebar.element, list, { side: "left", wide: "52rem", open: true });
  const right = new Drawer(layout, panel.element, settings, { side: "right", wide: "74rem", open: false });
  fill(element, layout);

  function showComposer() {
    const { settings: now } = chats.chat;
    let tools = 0;
    let toolsFault = false;
    try {
      tools = now.toolsOn ? readTools(now.tools).length : 0;
    } catch {
      toolsFault = now.toolsOn;
    }
    const usage = chats.path.findLast((message) => message.usage)?.usage;
    const most = model.props?.n_ctx;
    const note =
      usage && most
        ? `${(usage.prompt + usage.answer).toLocaleString("en")} of ${most.toLocaleString("en")} tokens`
        : "";
    composer.update({
      running: Boolean(chats.running),
      models: model.names,
      model: model.name,
      effort: now.effort,
      tools,
      toolsFault,
      note,
    });
    settings.classList.toggle("on", changed(now) > 0);
  }

  function showPath() {
    const { chat, path } = chats;
    if (shownChat !== chat.id) {
      shownChat = chat.id;
      transcript.clear();
      model.choose(chat.settings.model);
      panel.show(chat.settings);
      composer.text = remembered.draft(chat.id);
      remembered.chat = chat.id;
    }
    fill(title, chat.title || "New chat");
    menu.hidden = fresh.disabled = !path.length;
    transcript.show(path, chats.nodes, chats.runs);
    showComposer();
  }
  let shownChat = null;

  function showList() {
    sidebar.show(chats.list, chats.chat.id, chats.busy);
    fill(title, chats.chat.title || "New chat");
  }

  async function ask(answering) {
    announce("Asked");
    const message = await answering;
    if (model.props && model.props.n_ctx === undefined) model.load(); // it was not in memory before, and could not say what it is
    if (message.chat !== chats.chat.id || document.hidden) return;
    if (message.state === "failed") announce(`The answer failed: ${message.error.message}`);
    else if (message.calls.length) announce(`The model calls ${message.calls.map((call) => call.name).join(", ")}`);
    else announce(`Answer: ${message.content.slice(0, 400)}`);
  }

  function stop() {
    if (!chats.running) return;
    chats.running.stop();
    announce("Stopped");
  }

  async function remove() {
    const undo = await chats.remove();
    composer.focus();
    toast("The chat is deleted.", { action: "Undo", run: undo, seconds: 10 });
  }

  const showWelcome = () =>
    fill(
      transcript.empty,
      welcome(
        model,
        (text) => {
          composer.text = text;
          composer.focus();
        },
        (tools) => {
          chats.change({ settings: { ...chats.chat.settings, tools, toolsOn: true } });
          panel.show(chats.chat.settings);
          showComposer();
        },
      ),
    );

  chats.addEventListener("path", showPath);
  chats.addEventListener("list", showList);
  chats.addEventListener("message", ({ detail }) => {
    transcript.refresh(detail, chats.path, chats.nodes, chats.runs);
    if (composer.running !== Boolean(chats.running)) showComposer();
  });
  chats.addEventListener("gone", () =>
    toast("This chat was deleted in another tab. What you write here next brings it back.", { seconds: 10 }),
  );
  store.addEventListener("fault", () => sidebar.warn(store.fault));
  sidebar.warn(store.fault);
  layout.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chats.running && !event.defaultPrevented) {
      event.preventDefault();
      stop();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (
      event.key === "/" &&
      !element.hidden &&
      !event.ctrlKey &&
      !event.metaKey &&
      !event.target.closest?.("input, textarea, select, dialog")
    ) {
      event.preventDefault();
      composer.focus();
    }
  });
  addEventListener("beforeunload", (event) => {
    if (chats.runs.size) event.preventDefault();
  });

  await chats.start(remembered.chat);
  const known = () => {
    model.choose(chats.chat.settings.model);
    showWelcome();
    panel.show(chats.chat.settings);
    showComposer();
  };
  model.addEventListener("change", known);
  known();
  return {
    shown: () => {
      if (!matchMedia("(pointer: coarse)").matches && !document.querySelector("dialog[open]")) composer.focus();
      health.check();
    },
  };
}
