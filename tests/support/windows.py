"""An endless model without a network, and the loop around `Chooser.verify` in its barest form."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from strata.engine import Chooser
from strata.engine.verify import Verdict

Logits = Callable[[tuple[int, ...]], NDArray[np.float32]]
"""The logits [V] of a model after some tokens."""

Draft = Callable[[list[int], int], Sequence[int]]
"""Guesses for what comes after some tokens, at most so many."""


def decode(
    model: Logits,
    chooser: Chooser,
    draft: Draft,
    *,
    most: int,
    stop_ids: Sequence[int] = (),
    on_commit: Callable[[list[int], Verdict], None] | None = None,
) -> tuple[list[int], Verdict]:
    """Tokens until a stop token, an error or `most`; a window is the newest token and the guesses behind it.

    Returns:
        All tokens, a stop token included, and the last verdict.
    """
    text: list[int] = []
    guesses: Sequence[int] = ()
    while True:
        rows = np.stack([model((*text, *guesses[:n])) for n in range(len(guesses) + 1)])
        verdict = chooser.verify(rows, guesses, len(text))
        text += [token.id for token in verdict.tokens]
        if on_commit:
            on_commit(text, verdict)
        if verdict.error or len(text) >= most or text[-1] in stop_ids:
            return text, verdict
        guesses = list(draft(text, most - len(text) - 1))


def drafter(future: Sequence[int], depth: int, right: Sequence[int], vocabulary: int) -> Draft:
    """Knows the text, and is right for a given number of its guesses in each window in turn."""
    windows = 0

    def guess(text: list[int], most: int) -> list[int]:
        nonlocal windows
        good = right[windows % len(right)]
        windows += 1
        known = future[len(text) : len(text) + min(depth, most)]
        return [token if place < good else (token + 1) % vocabulary for place, token in enumerate(known)]

    return guess


def seeded(vocabulary: int, spread: float = 3.0) -> Logits:
    """Logits that depend on all tokens before, and on nothing else."""

    def logits(text: tuple[int, ...]) -> NDArray[np.float32]:
        rng = np.random.default_rng([*text, 7])
        return (rng.standard_normal(vocabulary) * spread).astype(np.float32)

    return logits
