"""What is asked for and what comes back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from strata.engine import FinishReason
from strata.text import Content, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart

if TYPE_CHECKING:
    from strata.text.grammar import Grammar


class Options(TypedDict, total=False):
    """Sampling values, limits and the form of one answer; a missing or None one means the default.

    The default of the sampling values is what the model file says (``general.sampling.*``), else greedy and nothing
    penalised; the default seed is 0. So the same request always gives the same answer. `strata.engine.Sampling` says
    what each means and which values it takes.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_window: int | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    max_tokens: int | None
    drafts: int | None  # most tokens guessed ahead, 0 to 7 (the default), as far as it pays; changes no answer
    lookup: bool | None  # guess from the text so far as well as with the model's draft head; on if nothing is said
    stop: str | Sequence[str] | None  # texts that end the answer, and are no part of it
    logprobs: int | None  # report every token, with this many of the likeliest at its place, 0 to 20
    grammar: "Mapping[str, Any] | Grammar | None"  # the form of the answer, as OpenAI's response_format; `Grammar.of`


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
    """The last event of a stream.

    Attributes:
        reason: why the answer ended.
        usage: tokens read and generated.
        stop: the stop string that ended it, if one did.
    """

    reason: FinishReason
    usage: Usage
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A token of the answer; comes before the text that it completes, and only if `logprobs` asks for it.

    Attributes:
        id: the token.
        bytes: what it stands for; the bytes of one token need not be whole characters.
        logprob: natural logarithm of the probability the model itself gave it, before penalties and filters.
        top: the likeliest tokens at its place with their logarithms, likeliest first.
    """

    id: int
    bytes: bytes
    logprob: float
    top: tuple[tuple[int, float], ...]


Event = Reasoning | Content | ToolCallStart | ToolCallArguments | ToolCallEnd | Chosen | Finished
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
        stop: the stop string that ended it, if one did.
        tokens: its tokens, without a stop token, if `logprobs` asked for them.
    """

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage
    stop: str | None = None
    tokens: tuple[Chosen, ...] = ()

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
    chosen: list[Chosen] = []
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
            case Chosen():
                chosen.append(event)
            case Finished():
                finished = event
            case ToolCallEnd():
                ended.add(event.index)
    assert finished is not None, "every stream ends with Finished"
    calls = tuple(ToolCall(name, arguments[index], index in ended) for index, name in enumerate(names))
    whole = "".join(text), "".join(reasoning)
    return Reply(*whole, calls, finished.reason, finished.usage, finished.stop, tuple(chosen))
