"""The loop: read the prompt, then window after window: guess, run, verify, commit."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import Token
from strata.engine.chooser import Chooser
from strata.engine.drafting.drafter import Drafter, Drafting
from strata.engine.sampling import Sampling
from strata.errors import RequestError

if TYPE_CHECKING:  # the command line checks sampling values without waiting for torch
    from torch import Tensor

    from strata.engine.constraint import Constraint
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
    drafting: Drafting | None = None,
    on_prompt: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    constraint: "Constraint | None" = None,
    logprobs: int | None = None,
) -> Iterator[Token | Finish]:
    """Continue `prompt` behind `state`.

    Args:
        network: the model.
        state: grows by the prompt and by every generated token but the last one, which nothing has followed yet. While
            the tokens of one window are handed out it is already as far as that window's last.
        prompt: token ids, at least one.
        sampling: how tokens are chosen.
        stop_ids: tokens that end the generation.
        max_tokens: most tokens to generate; None, or more than fits, means what the context leaves.
        banned: ids never to choose.
        drafting: tokens guessed ahead; None guesses nothing. The text is the same.
        on_prompt: called with (tokens read, tokens to read) before the first pass over the prompt and after each.
        cancelled: asked before each pass and each window; True ends the generation.
        constraint: which tokens may follow which; it is advanced by the tokens of the text.
        logprobs: how many of the likeliest tokens come with every token, 0 to 20; None is 0.

    Returns:
        Token events as they are chosen, then one Finish. The next token is computed when it is asked for.

    Raises:
        RequestError: at once, before anything is read: the prompt is empty or leaves no room in the context, an id
            is outside the vocabulary, or max_tokens is no positive integer.
        NotFiniteError: while iterating, if the model computes NaN or infinity.
    """
    room = network.config.context - state.length - len(prompt)
    _check(network, state, prompt, max_tokens, room)
    if drafting and drafting.head and state.mtp is None:
        raise RequestError("the draft head cannot guess: this network was built without drafts")
    limit = room if max_tokens is None else min(max_tokens, room)
    chooser = Chooser(
        sampling,
        vocabulary=network.config.V,
        banned=banned,
        stop_ids=stop_ids,
        prompt=prompt,
        constraint=constraint,
        logprobs=logprobs,
    )
    return _loop(
        network,
        state,
        list(prompt),
        chooser,
        frozenset(stop_ids),
        limit,
        drafting or Drafting(),
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
    chooser: Chooser,
    stop_ids: Collection[int],
    limit: int,
    drafting: Drafting,
    on_prompt: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Iterator[Token | Finish]:
    row = _read(network, state, prompt, on_prompt, cancelled)
    if row is None or cancelled():
        yield Finish(FinishReason.CANCELLED, 0)
        return
    drafter = Drafter(drafting, network, prompt)
    verdict = chooser.verify(network.logits(row).numpy(), (), state.length)
    chosen = 0
    while True:
        for token in verdict.tokens:
            chosen += 1
            if token.id in stop_ids:
                yield Finish(FinishReason.STOP, chosen, token.id)
                return
            yield token
        if verdict.error:
            raise verdict.error
        if chosen == limit:
            yield Finish(FinishReason.LENGTH, chosen)
            return
        if cancelled():
            yield Finish(FinishReason.CANCELLED, chosen)
            return
        newest = [token.id for token in verdict.tokens]
        guesses = drafter.guess(state, newest, limit - chosen - 1)
        began = time.perf_counter()
        window = network.window([(state, [newest[-1], *guesses])])[0]
        logits = network.logits(window.residual).numpy()
        verdict = chooser.verify(logits, guesses, state.length + 1)
        network.commit(state, window, verdict.rows)
        drafter.learn(len(guesses), verdict.rows - 1, time.perf_counter() - began)


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
