"""What is asked for and what comes back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from strata.engine import FinishReason
from strata.text import Content, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart


class Options(TypedDict, total=False):
    """Sampling values, limits and drafts of one request; a missing or None one means the default.

    The default of temperature, top_k, top_p and min_p is what the model file says (``general.sampling.*``), else
    greedy; the default seed is 0. So the same request always gives the same answer.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    max_tokens: int | None
    drafts: int | None  # most tokens guessed ahead with the draft head, 0 to 7, as far as it pays; not the answer


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt_tokens: of the whole prompt.
        completion_tokens: generated, a stop token among them.
        cached_tokens: of the prompt, those that did not have to be read again.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a stream."""

    reason: FinishReason
    usage: Usage


Event = Reasoning | Content | ToolCallStart | ToolCallArguments | ToolCallEnd | Finished
"""What a stream consists of."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model wants made.

    Attributes:
        name: the tool's name.
        arguments: JSON text of an object.
        complete: whether the model wrote the call to its end; otherwise the arguments are cut short and no valid JSON.
    """

    name: str
    arguments: str
    complete: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer.

    Attributes:
        text: the answer itself.
        reasoning: what the model thought before it.
        tool_calls: calls it wants made, in order.
        finish_reason: why it ended.
        usage: tokens read and generated.
    """

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage

    def message(self) -> dict[str, Any]:
        """The answer as a message of the conversation, for the next request; a call that was cut short is left out."""
        calls = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.tool_calls
            if call.complete
        ]
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message | ({"tool_calls": calls} if calls else {})


def gather(events: Iterable[Event]) -> Reply:
    """Put a stream together."""
    text: list[str] = []
    reasoning: list[str] = []
    names: list[str] = []
    arguments: list[str] = []
    ended: set[int] = set()
    finished: Finished | None = None
    for event in events:
        match event:
            case Content():
                text.append(event.text)
            case Reasoning():
                reasoning.append(event.text)
            case ToolCallStart():
                names.append(event.name)
                arguments.append("")
            case ToolCallArguments():
                arguments[event.index] += event.json_fragment
            case Finished():
                finished = event
            case ToolCallEnd():
                ended.add(event.index)
    assert finished is not None, "every stream ends with Finished"
    calls = tuple(ToolCall(name, arguments[index], index in ended) for index, name in enumerate(names))
    return Reply("".join(text), "".join(reasoning), calls, finished.reason, finished.usage)
