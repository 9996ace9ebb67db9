"""Thinking and effort in every client's spelling."""

from typing import Any

from strata.server.ask import Thinking
from strata.server.errors import bad
from strata.server.fields import Fields
from strata.server.options import Options

_EFFORTS = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "xhigh",
}
"""What clients say to what the template knows; none turns thinking off."""

_BUDGETS = (
    "thinking_budget",
    "thinking_budget_tokens",
    "reasoning_budget",
    "thinking_token_budget",
    "max_thinking_tokens",
)
_KINDS = {"enabled": True, "adaptive": True, "auto": True, "disabled": False}


class Found:
    """What has been said so far; the first word on effort and budget counts, and any "off" turns thinking off."""

    def __init__(self) -> None:
        self.on: bool | None = None
        self.effort: str | None = None
        self.budget: int | None = None
        self.shown = True
        self.kept = True

    def switch(self, on: bool | None) -> None:
        """On or off, if said."""
        if on is not None:
            self.on = on if self.on is None else self.on and on

    def level(self, value: Any, name: str) -> None:
        """An effort, if said."""
        if value is None:
            return
        if not isinstance(value, str) or value not in _EFFORTS:
            raise bad(f"{name} must be one of {', '.join(_EFFORTS)}, not {value!r}", name)
        if _EFFORTS[value] is None:
            self.switch(on=False)
        elif self.effort is None:
            self.effort = _EFFORTS[value]
            self.switch(on=True)

    def limit(self, value: int | None) -> None:
        """A budget, if said: -1 is no limit, 0 turns thinking off."""
        if value is None or value == -1:
            return
        if value == 0:
            self.switch(on=False)
        elif self.budget is None:
            self.budget = value
            self.switch(on=True)

    def thinking(self, *, default: bool, options: Options) -> Thinking:
        """All of it."""
        on = default if self.on is None else self.on
        effort = self.effort or options.effort
        if effort is not None:
            effort = _EFFORTS.get(effort, effort)
            on = on and effort is not None
        return Thinking(on=on, effort=effort, budget=self.budget, shown=self.shown, kept=self.kept)


def read_thinking(fields: Fields, options: Options) -> Thinking:
    """Take every field about thinking of a request in OpenAI's form."""
    found = Found()
    found.level(fields.any("reasoning_effort"), "reasoning_effort")
    read_reasoning(fields.object("reasoning"), found)
    read_anthropic(fields.object("thinking"), found)
    output = fields.object("output_config")
    if output is not None:
        found.level(output.any("effort"), "output_config.effort")
        output.end()
    found.switch(fields.flag("enable_thinking"))
    think = fields.any("think")
    if isinstance(think, bool) or think is None:
        found.switch(think)
    else:
        found.level(think, "think")
    for name in _BUDGETS:
        found.limit(fields.integer(name, -1))
    _read_template(fields.object("chat_template_kwargs"), found)
    if fields.flag("include_reasoning") is False:
        found.shown = False
    return found.thinking(default=options.thinking, options=options)


def read_reasoning(reasoning: Fields | None, found: Found) -> None:
    """OpenAI's and OpenRouter's ``reasoning`` object."""
    if reasoning is None:
        return
    found.level(reasoning.any("effort"), "reasoning.effort")
    found.switch(reasoning.flag("enabled"))
    found.limit(reasoning.integer("max_tokens", -1))
    if reasoning.flag("exclude"):
        found.shown = False
    reasoning.end(("summary", "generate_summary"))


def read_anthropic(thinking: Fields | None, found: Found) -> None:
    """Anthropic's ``thinking`` object, which others have taken over."""
    if thinking is None:
        return
    kind = thinking.text("type", *_KINDS)
    found.switch(None if kind is None else _KINDS[kind])
    budget = thinking.integer("budget_tokens", 0)
    if kind != "disabled":
        found.limit(budget)
    if thinking.text("display", "summarized", "full", "omitted") == "omitted":
        found.shown = False
    clear = thinking.flag("clear_thinking")
    if clear is not None:
        found.kept = not clear
    thinking.end()


def _read_template(switches: Fields | None, found: Found) -> None:
    if switches is None:
        return
    found.switch(switches.flag("enable_thinking"))
    found.switch(switches.flag("thinking"))
    found.level(switches.any("reasoning_effort"), "chat_template_kwargs.reasoning_effort")
    found.limit(switches.integer("thinking_budget", -1))
    kept = switches.flag("preserve_thinking")
    if kept is not None:
        found.kept = kept
    clear = switches.flag("clear_thinking")
    if clear is not None:
        found.kept = not clear
    switches.end()
