"""Sparse attention of a row, compiled: the indexer's choice, and the softmax over what it chose.

Idea: rows of a pass are taken one after another, so a row's bytes depend on itself and the cache alone, and room is
needed for one row's scores only, whatever the pass (case O11). The best blocks are found without sorting: scores are
never negative, so their bits as int32 rise as they do, and the score of the last block that fits the budget is found by
halving over those bits. Equal scores go to the lower block.

Bytes of a row: 4 id for every complete block (the indexer), then 8 hd nkv for every token attended: 8.4 MB at the real
model's budget of 2,048 tokens (hd = 256, nkv = 2), each read once for all nh/nkv = 12 query heads of its group.
Operations: 4 hd nh for every token, 50 million at that budget.

Order: dot products as in `strata.experts.kernels.floats`; exponentials as in `strata.experts`; the weighted sum of
values and its divisor in float64, tokens in rising order, divided and rounded once.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.floats import float_rows
from strata.experts.kernels.swiglu import exponential

_F32 = f"{fingerprint()}/F32/plain"  # every processor adds float32 numbers the same way
_TOGETHER = 4
_ONE = np.float32(1)


@njit(nogil=True)
def _products(base, stride, count, x, width, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """`count` rows, `stride` bytes apart from address `base` on, times the row at address `x`; floats at `out`."""
    whole = count // _TOGETHER * _TOGETHER
    for i in range(0, whole, _TOGETHER):
        float_rows(_F32, _TOGETHER, base + i * stride, stride, x, width, out + 4 * i, _ONE)
    for i in range(whole, count):
        float_rows(_F32, 1, base + i * stride, stride, x, width, out + 4 * i, _ONE)


@njit(nogil=True)
def _score(iq, keys, count, products, scores):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """Scores of `count` blocks for one row: the sum over heads of relu(q.k), divided by the root of the width."""
    width = keys.shape[1]
    root = np.float32(np.sqrt(np.float64(width)))
    scores[:count] = np.float32(0)
    for h in range(iq.shape[0]):
        start, x, out = np.intp(keys.ctypes.data), np.intp(iq[h].ctypes.data), np.intp(products.ctypes.data)
        _products(start, 4 * width, count, x, width, out)
        for b in range(count):
            scores[b] += max(products[b], np.float32(0))
    for b in range(count):
        scores[b] /= root
        if not scores[b] >= np.float32(0):  # NaN: its bits may be those of a negative number, which are out of order
            scores[b] = np.float32(np.inf)


@njit(nogil=True)
def _threshold(bits, count, blocks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """The largest number that at least `blocks` of the first `count` bit patterns reach."""
    reached = np.int32(0)
    for place in range(30, -1, -1):
        trial = np.int32(reached | (1 << place))
        above = 0
        for b in range(count):
            above += bits[b] >= trial
        if above >= blocks:
            reached = trial
    return reached


@njit(nogil=True)
def _choose(bits, count, seen, blocks, ratio, cells):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """Tokens a row attends, in rising order: the best blocks, and those behind the last complete block."""
    least = _threshold(bits, count, blocks)
    left = blocks
    for b in range(count):
        left -= bits[b] > least
    found = 0
    for b in range(count):
        equal = bits[b] == least
        if bits[b] > least or (equal and left > 0):
            left -= equal
            for i in range(ratio):
                cells[found] = b * ratio + i
                found += 1
    for token in range(count * ratio, seen):
        cells[found] = token
        found += 1
    return found


@njit(nogil=True)
def _weigh(p, v, g, cells, found, sums):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """Sum of the values of head `g` by weights, four tokens at a time in rising order; returns the sum of weights."""
    width = len(sums)
    for c in range(width):
        sums[c] = 0.0
    total = 0.0
    whole = found // _TOGETHER * _TOGETHER
    for i in range(0, whole, _TOGETHER):
        p0, p1, p2, p3 = np.float64(p[i]), np.float64(p[i + 1]), np.float64(p[i + 2]), np.float64(p[i + 3])
        total = (((total + p0) + p1) + p2) + p3
        v0, v1, v2, v3 = v[cells[i], g], v[cells[i + 1], g], v[cells[i + 2], g], v[cells[i + 3], g]
        for c in range(width):
            some = (sums[c] + p0 * np.float64(v0[c])) + p1 * np.float64(v1[c])
            sums[c] = (some + p2 * np.float64(v2[c])) + p3 * np.float64(v3[c])
    for i in range(whole, found):
        weight = np.float64(p[i])
        total += weight
        for c in range(width):
            sums[c] += weight * np.float64(v[cells[i], g, c])
    return total


@njit(nogil=True)
def _attend(q, k, v, cells, found, logits, sums, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """One row: q [nh, hd] over `found` tokens of k and v [n, nkv, hd] into out [nh, hd]."""
    heads, width = q.shape
    group = heads // k.shape[1]
    stride = 4 * k.shape[1] * width
    scale = np.float32(np.float64(width) ** -0.5)
    for g in range(k.shape[1]):
        first = 0
        while first < found:  # runs of neighbouring tokens
            last = first + 1
            while last < found and cells[last] == cells[last - 1] + 1:
                last += 1
            start = np.intp(k.ctypes.data) + cells[first] * stride + 4 * g * width
            for h in range(group):
                x, to = np.intp(q[g * group + h].ctypes.data), np.intp(logits[h].ctypes.data) + 4 * first
                _products(start, stride, last - first, x, width, to)
            first = last
        for h in range(group):
            row = logits[h]
            top = row[0] * scale
            for i in range(found):
                row[i] *= scale
                top = max(top, row[i])
            for i in range(found):
                x = row[i]
                row[i] = exponential(x - top) if x == x else x  # noqa: PLR0124  # a NaN stays one
            total = _weigh(row, v, g, cells, found, sums)
            for c in range(width):
                out[g * group + h, c] = np.float32(sums[c] / total)


def _rows(q, iq, k, v, keys, blocks, ratio, products, scores, bits, cells, logits, sums, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    rows = q.shape[0]
    for t in range(rows):
        seen = k.shape[0] - rows + t + 1
        count = seen // ratio
        if count <= blocks:  # the budget holds everything: plain causal attention
            for i in range(seen):
                cells[i] = i
            found = seen
        else:
            _score(iq[t], keys, count, products, scores)
            found = _choose(bits, count, seen, blocks, ratio, cells)
        _attend(q[t], k, v, cells, found, logits, sums, out[t])


@cache
def _kernel() -> Any:
    cube = "Array(float32, 3, 'C')"
    scratch = "float32[::1], float32[::1], int32[::1], int64[::1], float32[:,::1], float64[::1]"
    return compiled(_rows, f"void({cube}, {cube}, {cube}, {cube}, float32[:,::1], intp, intp, {scratch}, {cube})")


def _select(iq, keys, seen, blocks, ratio, products, scores, bits, cells):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    count = seen // ratio
    _score(iq, keys, count, products, scores)
    return _choose(bits, count, seen, blocks, ratio, cells)


@cache
def _selection() -> Any:
    return compiled(
        _select,
        "int64(float32[:,::1], float32[:,::1], intp, intp, intp, float32[::1], float32[::1], int32[::1], int64[::1])",
    )


def select(iq: Tensor, keys: Tensor, seen: int, blocks: int, ratio: int) -> Tensor:
    """Tokens that `attend` takes for a row with indexer query `iq` [ih, id] that sees `seen` tokens, in rising order.

    There are more complete blocks than the budget holds.
    """
    scores = np.empty(seen // ratio, dtype=np.float32)
    cells = np.empty((blocks + 1) * ratio - 1, dtype=np.int64)
    args = (seen, blocks, ratio, np.empty_like(scores), scores, scores.view(np.int32), cells)
    found = _selection()(iq.contiguous().numpy(), keys.contiguous().numpy(), *args)
    return torch.from_numpy(cells[:found])


def attend(q: Tensor, iq: Tensor, k: Tensor, v: Tensor, keys: Tensor, blocks: int, ratio: int) -> Tensor:
    """Attention of the last T of n tokens over the blocks the indexer chooses and their own incomplete block.

    Args:
        q: float32 [T, nh, hd], queries of the last T tokens.
        iq: float32 [T, ih, id], their indexer queries.
        k: float32 [n, nkv, hd], the T tokens included; query head h reads head h // (nh/nkv).
        v: as k.
        keys: float32 [nb, id], keys of all complete blocks.
        blocks: blocks the budget holds.
        ratio: tokens per block.

    Returns:
        float32 [T, nh, hd].
    """
    n, count = k.shape[0], k.shape[0] // ratio
    most = n if count <= blocks else min(n, (blocks + 1) * ratio - 1)
    scores = np.empty(count, dtype=np.float32)
    out = torch.empty(q.shape)
    _kernel()(
        *(x.contiguous().numpy() for x in (q, iq, k, v, keys)),
        blocks,
        ratio,
        np.empty_like(scores),
        scores,
        scores.view(np.int32),
        np.empty(most, dtype=np.int64),
        np.empty((q.shape[1] // k.shape[1], most), dtype=np.float32),
        np.empty(q.shape[2], dtype=np.float64),
        out.numpy(),
    )
    return out
