"""Which tokens may be drawn, and how likely each is: top_k, top_p, min_p, typical_p, in this order."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from strata.engine.sampling import Sampling

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_DEPTHS = (8.0, 16.0, 32.0)
"""How far below the largest logit to look for the likeliest tokens before all are looked at."""

_REACHES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""How far from the entropy to look for the most typical tokens, in nats, before all are looked at."""


def filtered(x: F64, spare: F64, sampling: "Sampling") -> tuple[I64, F64]:
    """Ids that may be drawn, and their weights exp(x), which need not add up to one.

    Sorting a real vocabulary takes longer than everything else here, so only tokens near the top are sorted, as many
    as the filters need.

    Args:
        x: logits [V] divided by the temperature; the largest is 0, those of forbidden tokens are -inf.
        spare: [V], overwritten.
        sampling: the filters.
    """
    if 0 < sampling.top_k < len(x):
        ids = likeliest(x, sampling.top_k)
        weights = np.exp(x[ids])
        total = float(weights.sum())
        if sampling.top_p < 1:
            ids, weights = _top_p(ids, weights, sampling.top_p * total)
    elif sampling.top_p < 1:
        ids, weights = _nucleus(x, spare, sampling.top_p)
    else:
        np.exp(x, out=spare)
        # min_p of the likeliest, which weighs exp(0) = 1; or whatever weighs anything, which typical_p looks at
        ids = np.flatnonzero(spare >= sampling.min_p if sampling.min_p > 0 else spare > 0)
        weights = spare[ids]
    return narrowed(ids, x[ids], weights, sampling)


def narrowed(ids: I64, x: F64, weights: F64, sampling: "Sampling") -> tuple[I64, F64]:
    """What min_p and typical_p leave of what the filters before them left: `ids` with their logits and weights."""
    if sampling.min_p > 0:
        likely = weights >= sampling.min_p
        ids, x, weights = ids[likely], x[likely], weights[likely]
    if sampling.typical_p < 1:
        ids, weights = _typical(x, ids, weights, sampling.typical_p)
    return ids, weights


def likeliest(x: F64, count: int) -> I64:
    """Ids of the `count` largest of `x` [V], largest first, equal ones by lower id; -inf is left out.

    The largest of `x` is 0.
    """
    ids = _above(x, count)
    if len(ids) > 4 * count:
        floor = np.partition(x[ids], len(ids) - count)[len(ids) - count]
        ids = ids[x[ids] >= floor]  # may be more than count where several equal the last
    return _ordered(x, ids)[:count]


def _above(x: F64, count: int) -> I64:
    """Ids of a set that holds at least the `count` largest, as far as there are so many."""
    for depth in _DEPTHS:
        ids = np.flatnonzero(x >= -depth)
        if len(ids) >= count:
            return ids
    return np.flatnonzero(x > -np.inf)


def _ordered(x: F64, ids: I64) -> I64:
    """Ids, which rise, by falling logit; equal ones stay as they are."""
    return ids[np.argsort(-x[ids], kind="stable")]


def _nucleus(x: F64, spare: F64, share: float) -> tuple[I64, F64]:
    """The fewest tokens of all whose probabilities add up to `share`, likeliest first, and their weights."""
    wanted = share * float(np.exp(x, out=spare).sum())
    for depth in _DEPTHS:
        ids = np.flatnonzero(x >= -depth)
        weights = np.exp(x[ids])
        if weights.sum() >= wanted * (1 + 1e-9):  # the sum in another order cannot fall below what is wanted
            break
    else:
        ids = np.flatnonzero(x > -np.inf)
    ids = _ordered(x, ids)
    return _top_p(ids, np.exp(x[ids]), wanted)


def _top_p(ids: I64, weights: F64, wanted: float) -> tuple[I64, F64]:
    """The first tokens whose weights add up to `wanted`, at least one."""
    kept = int(np.searchsorted(weights.cumsum(), wanted, side="left")) + 1
    return ids[:kept], weights[:kept]


def _typical(x: F64, ids: I64, weights: F64, share: float) -> tuple[I64, F64]:
    """The fewest tokens, those first whose information is nearest to the entropy, with this share of probability.

    Meister et al., "Locally Typical Sampling" (2023), as transformers' TypicalLogitsWarper has it. Information is
    `log(total) - x` and its mean the entropy, so their distance is that of `x` from its own mean.
    """
    if not weights.all():
        ids, x, weights = ids[weights > 0], x[weights > 0], weights[weights > 0]
    total = float(weights.sum())
    distance = np.abs(x - float((weights * x).sum()) / total)  # no BLAS: its threads may change the sum
    for reach in _REACHES:
        near = np.flatnonzero(distance <= reach)
        if len(near) and weights[near].sum() >= share * total * (1 + 1e-9):  # as in _nucleus
            break
    else:
        near = np.arange(len(ids))
    order = near[np.lexsort((ids[near], distance[near]))]
    return _top_p(ids[order], weights[order], share * total)
