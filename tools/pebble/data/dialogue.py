"""Conversations, their rendering through the chat template, and the weight of every character as a target."""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

TEMPLATE = Path(__file__).parents[3] / "src" / "strata" / "text" / "templates" / "pebble.jinja"
ASSISTANT, USER, END = "<|im_start|>assistant\n", "<|im_start|>user\n", "<|im_end|>"
OPEN, CLOSE = "<think>\n", "\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: its text.
        think: reasoning of an assistant message; dropped when thinking is off.
        call: name and arguments of a tool call, if any.
        emphasis: (start, end, factor) spans of the content whose targets weigh more.
        stop: weight of the end of the turn.
        weight: weight of a user message's own text as target.
    """

    role: str
    content: str
    think: str = ""
    call: tuple[str, dict[str, Any]] | None = None
    emphasis: tuple[tuple[int, int, float], ...] = ()
    stop: float = 1.0
    weight: float = 0.0

    def for_template(self, *, thinking: bool) -> dict[str, Any]:
        """The message as the template takes it."""
        m: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.role == "assistant":
            m["reasoning_content"] = self.think if thinking else ""
        if self.call:
            m["tool_calls"] = [{"function": {"name": self.call[0], "arguments": self.call[1]}}]
        return m


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and the switches the template is rendered with."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = True
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """A document: text, and one target weight per character."""

    text: str
    weights: np.ndarray  # float32 [len(text)]


def _refuse(message: str) -> None:
    raise ValueError(message)


class Template:
    """The shipped chat template, rendered as Strata renders it."""

    def __init__(self, path: Path = TEMPLATE) -> None:
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701  # not HTML
        environment.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
        environment.globals["raise_exception"] = _refuse
        self.source = path.read_text("utf-8")
        self._template = environment.from_string(self.source)

    def text(self, talk: Conversation, *, prompt: bool = False) -> str:
        """The conversation as one string; with ``prompt``, up to where the assistant is to speak."""
        return self._template.render(
            messages=[m.for_template(thinking=talk.thinking) for m in talk.messages],
            tools=talk.tools or None,
            enable_thinking=talk.thinking,
            reasoning_effort=talk.effort,
            add_generation_prompt=prompt,
        )

    def document(self, talk: Conversation) -> Rendered:
        """Text and target weights: what the assistant writes, ends of turns included, and little else."""
        text = self.text(talk)
        weights = np.zeros(len(text), np.float32)
        at = 0
        for message in talk.messages:
            if message.role == "user" and message.weight:
                at = text.index(USER, at) + len(USER)
                weights[at : text.index(END, at)] = message.weight
            if message.role != "assistant":
                continue
            at = text.index(ASSISTANT, at) + len(ASSISTANT)
            end = text.index(END, at)
            content = text.index(CLOSE, at) + len(CLOSE)
            start = at + len(OPEN) if talk.thinking else content
            weights[start:end] = 1
            for first, last, factor in message.emphasis:
                weights[content + first : content + last] = factor
            weights[end : end + len(END)] = message.stop
            at = end
        return Rendered(text, weights)


def switches(rng: random.Random) -> tuple[bool, str | None]:
    """Thinking and effort of a training conversation: every setting a user can choose, the default most often."""
    if rng.random() < 0.5:
        return False, None
    return True, rng.choices([None, "xhigh", "low", "medium"], [4, 1, 2, 2])[0]
