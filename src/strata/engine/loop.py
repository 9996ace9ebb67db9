"""The plain loop: read the prompt, then one token after the other."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import Token, choose
from strata.engine.sampling import Sampling
from strata.errors import RequestError

if TYPE_CHECKING:  # the command line checks sampling values without waiting for torch
    from torch import Tensor

    from strata.model import Network, State


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # the model chose a stop token
    LENGTH = "length"  # max_tokens, or the end of the context
    CANCELLED = "cancelled"  # whoever asked no longer wants it


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event.

    Attributes:
        reason: why it ended.
        tokens: tokens chosen, a stop token included.
        stop_id: the stop token, which is no `Token` event of its own.
    """

    reason: FinishReason
    tokens: int
    stop_id: int | None = None


def generate(
    network: "Network",
    state: "State",
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    stop_ids: Collection[int] = (),
    max_tokens: int | None = None,
    banned: Sequence[int] | NDArray[np.int64] = (),
    on_prompt: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[Token | Finish]:
    """Continue `prompt` behind `state`.

    Args:
        network: the model.
        state: grows by the prompt and by every generated token but the last one, which nothing has followed yet.
        prompt: token ids, at least one.
        sampling: how tokens are chosen.
        stop_ids: tokens that end the generation.
        max_tokens: most tokens to generate; None, or more than fits, means what the context leaves.
        banned: ids never to choose.
        on_prompt: called with (tokens read, tokens to read) before the first pass over the prompt and after each.
        cancelled: asked before each pass and each token; True ends the generation.

    Returns:
        Token events as they are chosen, then one Finish. The next token is computed when it is asked for.

    Raises:
        RequestError: at once, before anything is read: the prompt is empty or leaves no room in the context, an id
            is outside the vocabulary, or max_tokens is no positive integer.
        NotFiniteError: while iterating, if the model computes NaN or infinity.
    """
    room = network.config.context - state.length - len(prompt)
    _check(network, state, prompt, max_tokens, room)
    limit = room if max_tokens is None else min(max_tokens, room)
    return _loop(
        network,
        state,
        list(prompt),
        sampling,
        frozenset(stop_ids),
        limit,
        banned,
        on_prompt or _unheard,
        cancelled or _never,
    )


def _check(network: "Network", state: "State", prompt: Sequence[int], max_tokens: Any, room: int) -> None:
    if not prompt:
        raise RequestError("the prompt is empty; it needs at least one token")
    if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
        raise RequestError(f"max_tokens must be an integer of at least 1, not {max_tokens!r}")
    if room < 1:
        before = f" behind {state.length} earlier ones" if state.length else ""
        raise RequestError(
            f"the prompt has {len(prompt)} tokens{before}, but the context holds {network.config.context} and the "
            "answer needs room for at least one; shorten the prompt"
        )
    outside = next((i for i in prompt if not 0 <= i < network.config.V), None)
    if outside is not None:
        raise RequestError(f"token id {outside} is outside the vocabulary of {network.config.V}")


def _loop(
    network: "Network",
    state: "State",
    prompt: list[int],
    sampling: Sampling,
    stop_ids: Collection[int],
    limit: int,
    banned: Sequence[int] | NDArray[np.int64],
    on_prompt: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Iterator[Token | Finish]:
    row = _read(network, state, prompt, on_prompt, cancelled)
    chosen = 0
    while row is not None and not cancelled():
        token = choose(network.logits(row)[0].numpy(), sampling, state.length, banned)
        chosen += 1
        if token.id in stop_ids:
            yield Finish(FinishReason.STOP, chosen, token.id)
            return
        yield token
        if chosen == limit:
            yield Finish(FinishReason.LENGTH, chosen)
            return
        done = network.window(state, [token.id])
        network.commit(state, done, 1)
        row = done.residual
    yield Finish(FinishReason.CANCELLED, chosen)


def _read(
    network: "Network",
    state: "State",
    prompt: list[int],
    on_prompt: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> "Tensor | None":
    """The residual [1, S*H] of the last prompt token; None if cancelled before it was read.

    The passes are those `Network.read` would make of the whole prompt, so the bytes are too.
    """
    from strata.model.network import PASS_ROWS

    first = 0
    row = None
    on_prompt(0, len(prompt))
    while first < len(prompt):
        if cancelled():
            return None
        last = min(len(prompt), first + PASS_ROWS - state.length % PASS_ROWS)
        row = network.read(state, prompt[first:last])[-1:]
        first = last
        on_prompt(first, len(prompt))
    return row


def _unheard(done: int, total: int) -> None:
    """Nobody wants to know the progress."""


def _never() -> bool:
    return False
