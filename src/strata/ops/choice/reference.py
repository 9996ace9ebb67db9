"""The candidates of a row in NumPy: what the kernels of `strata.ops.choice.look` find, in float32 as there."""

import numpy as np
from numpy.typing import NDArray

from strata.model.candidates import MOST, Candidates, RowWish, Touched

F32 = NDArray[np.float32]


def adjusted(logits: F32, touched: Touched | None) -> F32:
    """Logits [V] after penalties and bias."""
    y = logits.copy()
    if touched is not None:
        x, r = logits[touched.ids], np.float32(touched.repetition)
        y[touched.ids] = np.where(touched.repeated, np.where(x > 0, x / r, x * r), x) - touched.shift
    return y


def look(logits: F32, row: RowWish, banned: NDArray[np.int64], temperature: float, top: int) -> Candidates:
    """What is to be said of a row.

    Args:
        logits: float32 [V].
        row: what is asked about it.
        banned: ids that are no tokens.
        temperature: 0 where only the likeliest matter.
        top: how many of the model's own likeliest to name.
    """
    ids = np.arange(len(logits))
    known = np.ones(len(logits), np.bool_)
    known[banned] = False
    fault = not bool(np.isfinite(logits[known]).all())
    x = np.where(known & np.isfinite(logits), logits, np.float32(-np.inf))
    largest = x.max()
    total = np.exp(x - largest).sum() if np.isfinite(largest) else np.float32(0)
    likeliest = np.lexsort((ids, -x))[:top]
    y = np.where(np.isfinite(x), adjusted(x, row.touched), np.float32(-np.inf))
    if row.allowed is not None:
        y[~row.allowed] = -np.inf
    order = np.lexsort((ids, -y))[:MOST]
    order = order[y[order] > -np.inf]
    weight, drawn = np.float32(0), (-1, 0.0, 0.0, 0.0)
    if len(order):
        below = np.where(y > -np.inf, y - y[order[0]], np.float32(0))
        weights = np.where(y > -np.inf, np.exp(below * inverse(temperature)), np.float32(0))
        upto = weights.cumsum(dtype=np.float64).astype(np.float32)
        weight = upto[-1]
        place = int(np.searchsorted(upto, np.float32(row.draw) * weight, side="right"))
        if place < len(y):
            after = upto[place] / weight
            drawn = place, float(logits[place]), float(after - weights[place] / weight), float(after)
    return Candidates(
        ids=order,
        logits=logits[order],
        whole=int(np.isfinite(y).sum()) <= MOST,
        floor=float(y[order[-1]]) if len(order) else -np.inf,
        fault=fault,
        largest=float(largest),
        total=float(total),
        weight=float(weight),
        drawn=drawn,
        top=tuple((int(i), float(x[i])) for i in likeliest if x[i] > -np.inf),
    )


def inverse(temperature: float) -> np.float32:
    """What differences are multiplied by: nothing where only the likeliest matter, and nothing infinite."""
    return np.float32(min(max(1 / temperature, 1e-30), 1e30) if temperature else 0.0)
