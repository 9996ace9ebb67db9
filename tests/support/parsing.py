"""Runs an output parser over a text cut in some way and gathers what it reported."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from strata.text import Content, Delta, OutputParser, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart

GET_W = {
    "type": "function",
    "function": {
        "name": "get_w",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
                "zip": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}
WRITE = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
    },
}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def call_text(name: str, **parameters: str) -> str:
    """A call in the model's format."""
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


@dataclass
class Turn:
    """The sum of all deltas of a turn."""

    reasoning: str = ""
    content: str = ""
    names: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)
    reasoning_open: bool = False
    unfinished_call: bool = False

    def take(self, delta: Delta) -> None:
        """Add one delta, and check that it may come now."""
        if isinstance(delta, Reasoning):
            assert delta.text
            self.reasoning += delta.text
        elif isinstance(delta, Content):
            assert delta.text
            self.content += delta.text
        elif isinstance(delta, ToolCallStart):
            assert delta.index == len(self.names)
            assert all(self.complete)
            self.names.append(delta.name)
            self.arguments.append("")
            self.complete.append(False)
        elif isinstance(delta, ToolCallArguments):
            assert delta.index == len(self.names) - 1
            assert not self.complete[-1]
            assert delta.json_fragment
            self.arguments[-1] += delta.json_fragment
        else:
            assert isinstance(delta, ToolCallEnd)
            assert delta.index == len(self.names) - 1
            assert not self.complete[-1]
            self.complete[-1] = True

    @property
    def calls(self) -> list[tuple[str, object]]:
        """Names and decoded arguments of the complete calls."""
        done = zip(self.names, self.arguments, self.complete, strict=True)
        return [(name, json.loads(arguments)) for name, arguments, complete in done if complete]


def pieces(text: str, size: int) -> list[str]:
    """The text in pieces of a size; in one piece if it is 0."""
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]


def parse(
    chunks: Iterable[str], tools: list[dict[str, object]] | None = None, *, thinking: bool = False, cut: bool = False
) -> Turn:
    """What a parser makes of these chunks."""
    parser = OutputParser(tools, thinking=thinking)
    turn = Turn()
    for chunk in chunks:
        for delta in parser.push(chunk):
            turn.take(delta)
    for delta in parser.finish(cut=cut):
        turn.take(delta)
    assert parser.calls == sum(turn.complete)
    turn.reasoning_open, turn.unfinished_call = parser.reasoning_open, parser.unfinished_call
    return turn


def parse_every_way(
    text: str, tools: list[dict[str, object]] | None = None, *, thinking: bool = False, cut: bool = False
) -> Turn:
    """The same for chunks of 1, 7 and all characters, which must agree."""
    turns = [parse(pieces(text, size), tools, thinking=thinking, cut=cut) for size in (0, 1, 7)]
    assert turns[0] == turns[1] == turns[2]
    return turns[0]
