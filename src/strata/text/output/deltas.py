"""What an output parser reports, piece by piece."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reasoning:
    """More text of the think block."""

    text: str


@dataclass(frozen=True)
class Content:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class ToolCallStart:
    """A call begins; calls are numbered from 0."""

    index: int
    name: str


@dataclass(frozen=True)
class ToolCallArguments:
    """More JSON of a call's arguments; all fragments of a finished call together are one JSON object."""

    index: int
    json_fragment: str


@dataclass(frozen=True)
class ToolCallEnd:
    """A call is complete. A call without this was cut off."""

    index: int


Delta = Reasoning | Content | ToolCallStart | ToolCallArguments | ToolCallEnd


def merged(deltas: list[Delta]) -> list[Delta]:
    """The same report with neighbours of one kind joined."""
    result: list[Delta] = []
    run: list[str] = []
    for place, delta in enumerate(deltas):
        if isinstance(delta, ToolCallStart | ToolCallEnd):
            result.append(delta)
            continue
        run.append(delta.json_fragment if isinstance(delta, ToolCallArguments) else delta.text)
        after = deltas[place + 1] if place + 1 < len(deltas) else None
        if _joins(delta, after):
            continue
        text = "".join(run)
        run = []
        result.append(
            ToolCallArguments(delta.index, text) if isinstance(delta, ToolCallArguments) else type(delta)(text)
        )
    return result


def _joins(delta: Delta, after: Delta | None) -> bool:
    if isinstance(delta, ToolCallArguments):
        return isinstance(after, ToolCallArguments) and after.index == delta.index
    return type(after) is type(delta)
