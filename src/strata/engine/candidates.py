"""Choosing from the few tokens that a device names, where they decide; the result is that of `strata.engine.choice`.

A device says which tokens have the largest logits, in float32 after penalties, bias and grammar, and what all weigh
together. What is decided here is decided in float64 with the arithmetic of `choice` and `filters`, on the very numbers
that those would have looked at. What is only known within bounds (the weight of tokens that were not named, and which
tokens come first where float32 cannot tell) must lead to one result wherever in its bounds it is; else nothing is
decided, and whoever asked reads the whole row.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from strata.engine.choice import Token, drawn, uniform
from strata.engine.filters import F64, I64, narrowed

if TYPE_CHECKING:
    from strata.engine.sampling import Sampling
    from strata.model.candidates import Candidates

ROUNDED = 2.0**-16
"""Relative bound on what float32 adds to a sum of weights: some 32 roundings on the way to it, 2 ulp of each
exponential, and the roundings of exponents, whose mean is below the logarithm of the vocabulary; together 2^-17.6."""

ADJUSTED = 2.0**-21
"""Relative bound on the roundings of one adjusted logit: the penalty and its own rounding, shift, difference."""

SUMMED = 1e-9
"""Relative bound on what another order of additions in float64 changes."""


class Known(NamedTuple):
    """The candidates of a row, likeliest first, equal ones by lower id.

    Attributes:
        ids: of them.
        z: adjusted logits less the largest, over the temperature.
        sure: so many come before every other token.
        whole: there are no others.
        rest: none of the others has a larger `z`.
        weight: of all tokens, exp(z), within ``off`` of it.
        off: relative.
    """

    ids: I64
    z: F64
    sure: int
    whole: bool
    rest: float
    weight: float
    off: float


def choose_from(
    found: "Candidates",
    sampling: "Sampling",
    position: int,
    vocabulary: int,
    *,
    adjusted: Callable[[I64, F64], F64] | None = None,
    shift: float = 0.0,
    top: int = 0,
) -> Token | None:
    """The token at `position`; None where the candidates do not decide.

    Args:
        found: what a device says of the row.
        sampling: settings.
        position: absolute position of the token.
        vocabulary: V.
        adjusted: what penalties and bias make of logits, float64; None if there are none.
        shift: the largest finite number that they take from a logit, or add.
        top: how many of the likeliest tokens to report.
    """
    if found.fault or not len(found.ids):
        return None
    x = found.logits.astype(np.float64)
    y = x if adjusted is None else adjusted(found.ids, x)
    order = np.lexsort((found.ids, -y))
    ids, y = found.ids[order], y[order]
    off = 0.0 if adjusted is None else ADJUSTED * (abs(found.floor) + 2 * shift)
    rest = -np.inf if found.whole else found.floor + off
    # Without adjustments the device has ordered the very numbers that are ordered here.
    sure = len(ids) if found.whole or adjusted is None else int(np.count_nonzero(y > rest))
    if not sure:
        return None
    if sampling.greedy:
        token = int(ids[0])
    else:
        with np.errstate(over="ignore"):  # as in `choice`: a tiny temperature may send all others to -inf
            z = (y - y[0]) / sampling.temperature
            below = (rest - y[0]) / sampling.temperature
            moved = 0.0 if adjusted is None else 2 * ADJUSTED * (abs(y[0]) + 2 * shift) / sampling.temperature
        known = Known(ids, z, sure, found.whole, below, found.weight, ROUNDED + np.expm1(min(moved, 1.0)))
        chosen = _sample(known, found, sampling, position, vocabulary)
        if chosen is None:
            return None
        token = chosen
    return Token(token, found.logprob(token), found.likeliest(top))


def _sample(known: Known, found: "Candidates", sampling: "Sampling", position: int, vocabulary: int) -> int | None:
    """One draw; None where it is not certain."""
    if sampling.filters or known.whole:
        left = _kept(known, sampling, vocabulary)
        if left is None:
            return None
        ids, weights = left
        return int(ids[drawn(weights.cumsum(), sampling, position)])
    token, _, before, after = found.drawn
    draw, off = uniform(sampling.seed, position), 2 * known.off
    return token if token >= 0 and before + off <= draw < after - off else None


def _kept(known: Known, sampling: "Sampling", vocabulary: int) -> tuple[I64, F64] | None:
    """Ids that may be drawn and their weights, as `filters.filtered` has them."""
    ids, z = known.ids, known.z
    there = z > -np.inf
    weights = np.exp(z)
    most = sampling.top_k if 0 < sampling.top_k < vocabulary else 0
    if most and (known.whole or most <= known.sure):
        there[most:] = False
        ids, z, weights = ids[there], z[there], weights[there]
        if sampling.top_p < 1:
            kept = _reached(weights, sampling.top_p * float(weights.sum()))
            ids, z, weights = ids[:kept], z[:kept], weights[:kept]
    elif sampling.top_p < 1:
        kept_ = _nucleus(known, weights, most, sampling.top_p)
        if kept_ is None:
            return None
        ids, z, weights = ids[:kept_], z[:kept_], weights[:kept_]
    elif known.whole or np.exp(known.rest) < sampling.min_p * (1 - SUMMED):
        likely = weights >= sampling.min_p if sampling.min_p > 0 else weights > 0
        ids, z, weights = ids[likely], z[likely], weights[likely]
        if not most:
            order = np.argsort(ids)
            ids, z, weights = ids[order], z[order], weights[order]
    else:
        return None
    return narrowed(ids, z, weights, sampling)


def _nucleus(known: Known, weights: F64, most: int, share: float) -> int | None:
    """How many of the likeliest have this share, of all or of the `most` likeliest; None if that is not certain."""
    low = high = float(weights.sum())
    if known.whole:
        low, high = low * (1 - SUMMED), high * (1 + SUMMED)
    else:
        whole = known.weight * (1 + known.off)
        if most:
            low = float(weights[: known.sure].sum())
            whole = min(whole, high + (most - len(weights)) * float(np.exp(known.rest)))
        else:
            low = known.weight * (1 - known.off)
        low, high = low * (1 - SUMMED), whole * (1 + SUMMED)
    fewest, largest = (min(_reached(weights, share * total), len(weights) + 1) for total in (low, high))
    if known.whole:
        return len(weights) if fewest >= len(weights) else fewest if fewest == largest else None
    return fewest if fewest == largest and fewest <= known.sure else None


def _reached(weights: F64, wanted: float) -> int:
    """How many of the first weigh so much together."""
    return int(np.searchsorted(weights.cumsum(), wanted, side="left")) + 1
