// An answer on the screen. `update` may be called as often as there is news; what is right already stays as it is.

import { fill, h, icon, iconButton } from "../dom.js";
import { CallBlock } from "./calls.js";
import { explain, holding } from "./errors.js";
import { footer } from "./footer.js";
import { Streamed } from "./streamed.js";

/** An answer, complete or under way. */
export class Answer {
  constructor(message, does) {
    this.message = message;
    this.does = does;
    this.prose = h("div.prose");
    this.streamed = new Streamed(this.prose, () => does.grown());
    this.thoughts = null;
    this.calls = h("div.calls");
    this.blocks = [];
    this.form = null;
    this.status = h("div.progress", { hidden: true });
    this.end = h("div.end");
    this.foot = h("div.foot");
    this.element = h(
      "article.message.answer",
      { "aria-label": "Answer", data: { id: message.id } },
      this.prose,
      this.calls,
      this.status,
      this.end,
      this.foot,
    );
    this.closed = false;
  }

  /** @param {{siblings: object[], run: object|null, last: boolean}} now */
  update({ siblings, run, last }) {
    const { message } = this;
    const running = Boolean(run);
    this.element.setAttribute("aria-busy", String(running));
    this.#think(running);
    if (running || message.state === "elsewhere") {
      this.closed = false;
      if (message.content) this.streamed.write(message.content);
    } else if (!this.closed) {
      this.closed = true;
      this.streamed.end(message.content);
    }
    this.#call(running, last);
    this.#progress(run);
    fill(this.end, running ? null : this.#ending(last));
    fill(
      this.foot,
      running
        ? null
        : footer(message, siblings, this.does, [
            iconButton("retry", "Answer again", () => this.does.retry(message), { class: "small" }),
            last &&
              ["length", "stopped"].includes(message.state) &&
              message.content.trim() &&
              !message.calls.length &&
              h("button.button.tiny", { type: "button", on: { click: () => this.does.resume(message) } }, "Continue"),
          ]),
    );
    this.foot.classList.toggle("kept", last);
  }

  #think(running) {
    const { message } = this;
    if (!message.reasoning) return;
    if (!this.thoughts) {
      const place = h("div.prose.thought");
      const streamed = new Streamed(place, () => this.does.grown());
      const words = h("span");
      const element = h(
        "details.thinking",
        {
          on: {
            toggle: () => {
              if (element.open) streamed.end(this.message.reasoning);
            },
          },
        },
        h("summary", {}, icon("thought"), words, icon("right")),
        place,
      );
      this.thoughts = { element, words, streamed };
      this.prose.before(element);
    }
    const { element, words, streamed } = this.thoughts;
    const active = running && !message.content && !message.calls.length;
    element.classList.toggle("active", active);
    fill(words, active ? thinkingFor(message) : thoughtFor(message));
    if (!element.open) return; // it is made when it is opened
    if (active) streamed.write(message.reasoning);
    else streamed.end(message.reasoning);
  }

  #call(running, last) {
    const { calls, state } = this.message;
    calls.forEach((call, place) => {
      if (!this.blocks[place]) {
        this.blocks[place] = new CallBlock();
        this.calls.append(this.blocks[place].element);
      }
      this.blocks[place].update(call, running);
    });
    const open = !running && last && state === "done" && calls.length > 0;
    if (open && !this.form) {
      this.form = this.#answerForm(calls);
      this.calls.append(this.form);
    } else if (!open && this.form) {
      this.form.remove();
      this.form = null;
    }
    if (calls.length) this.does.grown();
  }

  #answerForm(calls) {
    const areas = calls.map((call) =>
      h("textarea.input.mono", {
        rows: 2,
        "aria-label": `Result of ${call.name}`,
        placeholder: `What ${call.name} gives back: text or JSON`,
      }),
    );
    return h(
      "form.results",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            this.does.answer(
              this.message,
              calls.map((call, place) => ({ call, content: areas[place].value })),
            );
          },
          keydown: (event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
          },
        },
      },
      h(
        "p.quiet.small",
        {},
        calls.length > 1
          ? "The model waits for what these tools give back. Nothing is run by this page."
          : "The model waits for what this tool gives back. Nothing is run by this page.",
      ),
      calls.map((call, place) => h("div.field", {}, h("span.label.mono", {}, call.name), areas[place])),
      h(
        "div.actions",
        {},
        h("button.button.main", { type: "submit" }, calls.length > 1 ? "Send the results" : "Send the result"),
      ),
    );
  }

  #progress(run) {
    const shown = run && run.phase !== "answering";
    this.status.hidden = !shown;
    if (!shown) return;
    if (run.phase === "held") {
      fill(this.status, h("span.dots", { "aria-hidden": "true" }), h("span", {}, holding(run.hold)));
    } else if (run.phase === "reading" && run.progress.total > run.progress.processed) {
      const { processed, total } = run.progress;
      const share = Math.round((processed / total) * 100);
      fill(
        this.status,
        h(
          "span.bar",
          {
            role: "progressbar",
            "aria-label": "Reading the conversation",
            "aria-valuenow": share,
            "aria-valuemin": 0,
            "aria-valuemax": 100,
          },
          h("span", { style: { width: `${share}%` } }),
        ),
        h("span.numbers", {}, `Reading ${processed.toLocaleString("en")} of ${total.toLocaleString("en")}`),
      );
    } else {
      fill(this.status, h("span.dots", { "aria-hidden": "true" }), h("span.unseen", {}, "Waiting for the answer"));
    }
  }

  #ending(last) {
    const { message } = this;
    if (message.state === "failed" && message.error) {
      const { title, advice, action } = explain(message.error);
      return h(
        "div.notice.bad",
        {},
        icon("alert"),
        h(
          "div.grow",
          {},
          h("p", {}, h("strong", {}, title)),
          h("p", {}, advice),
          h("p.small.quiet", {}, message.error.message),
          last &&
            action !== "none" &&
            h(
              "div.actions.start",
              {},
              h(
                "button.button",
                { type: "button", on: { click: () => this.does.again(message, action) } },
                action === "key" ? "Enter a key" : "Try again",
              ),
            ),
        ),
      );
    }
    const said = {
      stopped: "Stopped.",
      elsewhere: "This answer is being written in another tab.",
      length:
        message.unfinished === "reasoning"
          ? "The answer reached its longest length while the model was still thinking."
          : "The answer reached its longest length.",
    }[message.state];
    if (said) return h("p.quiet.small.said", {}, said);
    if (message.state === "done" && !message.content.trim() && !message.calls.length) {
      return h(
        "p.quiet.small.said",
        {},
        message.unfinished === "reasoning"
          ? "The model ended its turn inside its thoughts."
          : "The model ended its turn without a word.",
      );
    }
    return null;
  }
}

function thinkingFor({ began }) {
  const seconds = Math.round((Date.now() - began) / 1000);
  return seconds < 2 ? "Thinking" : ["Thinking ", h("span.numbers", {}, `${seconds} s`)];
}

function thoughtFor({ thought, unfinished }) {
  if (unfinished || thought === null) return "Thoughts";
  const seconds = thought / 1000;
  if (seconds < 1) return "Thought for a moment";
  return seconds < 90
    ? `Thought for ${Math.round(seconds)} s`
    : `Thought for ${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
