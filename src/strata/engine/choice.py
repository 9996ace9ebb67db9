"""From the logits of one position to one token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.engine.sampling import Sampling
from strata.errors import StrataError

F64 = NDArray[np.float64]


class NotFiniteError(StrataError):
    """The model computed NaN or infinity; the request cannot go on (case P02)."""


@dataclass(frozen=True, slots=True)
class Token:
    """A chosen token, and the natural logarithm of the probability the model gave it before temperature and filters."""

    id: int
    logprob: float


def choose(
    logits: NDArray[np.float32], sampling: Sampling, position: int, banned: Sequence[int] | NDArray[np.int64] = ()
) -> Token:
    """Choose the token at `position`.

    Args:
        logits: float32 [V].
        sampling: settings.
        position: absolute position the token will take; with the seed it keys the only random draw.
        banned: ids that are never chosen and have no probability, such as padding rows of the vocabulary.

    Raises:
        NotFiniteError: a logit of an id that may be chosen is NaN or infinite.
    """
    x = logits.astype(np.float64)
    if len(banned):
        x[np.asarray(banned, np.int64)] = 0.0
    if not np.isfinite(x).all():
        bad = int(np.flatnonzero(~np.isfinite(x))[0])
        raise NotFiniteError(
            f"the model computed {x[bad]} for token {bad} at position {position}, so the answer ends here; "
            "`strata inspect FILE --check` looks for damaged weights"
        )
    if len(banned):
        x[np.asarray(banned, np.int64)] = -np.inf
    # argmax returns the first, so equal logits go to the lowest id.
    best = int(x.argmax())
    token = best if sampling.greedy else _sample(x - x[best], sampling, position)
    return Token(token, float(x[token] - x[best] - np.log(np.exp(x - x[best]).sum())))


def uniform(seed: int, position: int) -> float:
    """The draw of one position, in [0, 1).

    The first word of Philox-4x64-10 with counter `position` and key `seed`, of which the upper 53 bits count. It
    depends on nothing else, so whatever order or window positions are computed in, each has its one draw.
    """
    # NumPy steps the counter before it computes.
    word = np.random.Philox(counter=(position - 1) % (1 << 256), key=seed).random_raw()
    return (int(word) >> 11) * 2.0**-53


def _sample(x: F64, sampling: Sampling, position: int) -> int:
    """One draw from the filtered distribution; `x` [V] are logits whose largest is 0."""
    with np.errstate(over="ignore"):  # a tiny temperature may send all others to -inf, which is right
        x = x / sampling.temperature
    ids, weights = _filter(x, sampling)
    cumulated = weights.cumsum()
    drawn = int(np.searchsorted(cumulated, uniform(sampling.seed, position) * cumulated[-1], side="right"))
    # The product may round up to the total; then the last token with any weight is meant.
    last = int(np.searchsorted(cumulated, cumulated[-1], side="left"))
    return int(ids[min(drawn, last)])


def _filter(x: F64, sampling: Sampling) -> tuple[NDArray[np.int64], F64]:
    """Ids that may be drawn, and their weights exp(x), both by falling weight if a filter needs the order."""
    if 0 < sampling.top_k < len(x):
        floor = np.partition(x, len(x) - sampling.top_k)[len(x) - sampling.top_k]
        ids = np.flatnonzero(x >= floor)  # may be more than top_k where several equal the last
        ids = ids[np.argsort(-x[ids], kind="stable")][: sampling.top_k]
    elif sampling.top_p < 1:
        ids = np.argsort(-x, kind="stable")
    else:
        ids = np.arange(len(x))
    weights = np.exp(x[ids])
    if sampling.top_p < 1:
        cumulated = weights.cumsum()
        kept = int(np.searchsorted(cumulated, sampling.top_p * cumulated[-1], side="left")) + 1
        ids, weights = ids[:kept], weights[:kept]
    if sampling.min_p > 0:
        likely = weights >= sampling.min_p  # the likeliest weighs exp(0) = 1
        ids, weights = ids[likely], weights[likely]
    return ids, weights
