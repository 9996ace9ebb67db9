"""What a generation says: tokens as they are chosen, and one end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from strata.engine.choice import Token
from strata.errors import StrataError


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # the model chose a stop token
    LENGTH = "length"  # max_tokens, or the end of the context
    CANCELLED = "cancelled"  # whoever asked no longer wants it
    TIMEOUT = "timeout"  # the request's time is up
    ERROR = "error"  # this answer cannot go on; see `Finish.error`


class GenerationError(StrataError):
    """Something outside our own errors broke one answer; its cause says what."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer took.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those of them that had been read before.
        windows: windows computed.
        drafted: tokens guessed, by source: "grammar", "lookup", "head", or what a replaced drafter calls itself.
        accepted: how many of them were right.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    windows: int = 0
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event.

    Attributes:
        reason: why it ended.
        tokens: tokens chosen, a stop token included.
        stop_id: the stop token, which is no `Token` event of its own.
        usage: what it took.
        error: with reason ERROR, what went wrong. The state of such an answer holds no row after the last token, but
            nothing that follows from it should be kept.
    """

    reason: FinishReason
    tokens: int
    stop_id: int | None = None
    usage: Usage = field(default_factory=Usage, compare=False)
    error: StrataError | None = field(default=None, compare=False)


Event = Token | Finish
"""What reading and stepping yield."""


def as_ours(error: Exception) -> StrataError:
    """What ends an answer: an error of ours as it is, any other wrapped; no tracebacks.

    A traceback holds frames, these the answer, and that its error: a circle that would keep a conversation's memory on
    a device until Python looks for circles, which may be never. Whoever wants the traceback logs it before.
    """
    ours = error if isinstance(error, StrataError) else GenerationError(_words(error))
    if ours is not error:
        ours.__cause__ = error
    left: list[BaseException | None] = [ours]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]
    return ours


def _words(error: Exception) -> str:
    return f"this answer cannot go on: {type(error).__name__}: {error}"
