"""One answer from beginning to end, event by event."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import Token
from strata.engine.drafting.drafter import Drafter
from strata.engine.drafting.options import Drafting
from strata.engine.drafting.timings import Timings
from strata.engine.events import Event, Finish
from strata.engine.generation import Generation
from strata.engine.request import Request
from strata.engine.sampling import Sampling
from strata.engine.trace import Trace
from strata.engine.window import step

if TYPE_CHECKING:  # the command line checks sampling values without waiting for torch
    from strata.engine.constraint import Constraint
    from strata.model import Network, State


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
    drafter: Drafter | None = None,
    timings: Timings | None = None,
    trace: Trace | None = None,
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
        constraint: which tokens may follow which; a fork of it is used.
        logprobs: how many of the likeliest tokens come with every token, 0 to 20; None is 0.
        drafter: where guesses come from, in place of what `drafting` says.
        timings: what windows take, learned together with other answers.
        trace: where to note passes and windows.

    Returns:
        Token events as they are chosen, then one Finish. The next token is computed when it is asked for.

    Raises:
        RequestError: at once, before anything is read: the prompt is empty or leaves no room in the context, an id
            is outside the vocabulary, or max_tokens is no positive integer.
        StrataError: while iterating: the answer cannot go on; NotFiniteError if the model computes NaN or infinity.
    """
    request = Request(
        "",
        tuple(prompt),
        sampling,
        frozenset(stop_ids),
        max_tokens,
        drafting or Drafting(),
        constraint,
        logprobs,
        banned,
    )
    generation = Generation(network, state, request, drafter=drafter, timings=timings)
    return _loop(network, generation, on_prompt or _unheard, cancelled or _never, trace)


def _loop(
    network: "Network",
    generation: Generation,
    on_prompt: Callable[[int, int], None],
    cancelled: Callable[[], bool],
    trace: Trace | None,
) -> Iterator[Token | Finish]:
    total = generation.reading
    on_prompt(0, total)
    while not generation.finished:
        if cancelled():
            yield from generation.cancel()
            return
        if generation.reading:
            events: list[Event] = generation.read(trace=trace)
            on_prompt(generation.read_tokens, total)
        else:
            events = step(network, [generation], trace=trace)[0]
        for event in events:
            if isinstance(event, Finish) and event.error:
                raise event.error
            yield event


def _unheard(done: int, total: int) -> None:
    """Nobody wants to know the progress."""


def _never() -> bool:
    return False
