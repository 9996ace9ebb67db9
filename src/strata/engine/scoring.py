"""How likely the model finds a given text: the log-probability of each of its tokens (case G10)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import choose
from strata.engine.sampling import Sampling
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model import Network, State

ROWS = 32
"""Rows whose logits are in memory at once: 32 MB with the real vocabulary."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One token of a given text.

    Attributes:
        id: the token.
        logprob: natural logarithm of the probability the model gave it; None for the first, which nothing precedes.
        top: the likeliest tokens in its place with theirs, likeliest first.
    """

    id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


def score(
    network: "Network",
    state: "State",
    ids: Sequence[int],
    *,
    banned: Sequence[int] | NDArray[np.int64] = (),
    top: int = 0,
    rows: int | None = None,
) -> Iterator[Scored]:
    """Read a text and say how likely each of its tokens was, given those before it.

    Args:
        network: the model.
        state: that of a conversation that has not begun; holds the text afterwards.
        ids: the text, at least one token.
        banned: ids that have no probability.
        top: how many of the likeliest tokens to report in each place.
        rows: tokens of a pass over the text; None is the network's own size. No value depends on it.

    Returns:
        One Scored a token, pass by pass: the next pass is computed when its first token is asked for.

    Raises:
        RequestError: at once: no tokens, or more than the context holds; while iterating: an id outside the vocabulary.
        NotFiniteError: while iterating: the model computed NaN or infinity.
    """
    if not ids:
        raise RequestError("there is nothing to score; it takes at least one token")
    if state.length:
        raise RequestError(f"scoring begins with an empty state, not one of {state.length} tokens")
    if len(ids) > network.config.context:
        raise RequestError(f"the text has {len(ids)} tokens, but the context holds {network.config.context}")
    from strata.model.network import PASS_ROWS

    return _score(network, state, list(ids), np.asarray(banned, np.int64), top, rows or PASS_ROWS)


def _score(
    network: "Network", state: "State", ids: list[int], banned: NDArray[np.int64], top: int, rows: int
) -> Iterator[Scored]:
    yield Scored(ids[0], None)
    for first in range(0, len(ids) - 1, rows):
        piece = ids[first : min(first + rows, len(ids) - 1)]  # the last token predicts what is not asked for
        residual = network.read(state, piece)
        for begin in range(0, len(piece), ROWS):
            logits = network.logits(residual[begin : begin + ROWS]).numpy()
            for place, row in enumerate(logits, first + begin + 1):
                yield _scored(row, ids[place], place, banned, top)
    network.read(state, ids[-1:])


def _scored(logits: NDArray[np.float32], token: int, position: int, banned: NDArray[np.int64], top: int) -> Scored:
    """The value of one token: float64 throughout, as `choose` computes it."""
    best = choose(logits, Sampling(), position, banned, top=top)
    x = logits.astype(np.float64)
    x[banned] = -np.inf
    return Scored(token, float(best.logprob + (x[token] - x[best.id])), best.top)
