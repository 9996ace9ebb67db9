"""Scales and minimums for the K types whose weights are ``scale * code - minimum`` (Q4_K, Q5_K)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8
from strata.formats.fields import as_half
from strata.formats.scales import dot, inverse, ratio

F64 = NDArray[np.float64]

# The range of a group is laid over up to two codes less, or one more, than there are: cutting the ends a little buys a
# finer step for the rest, and among many scales some happen to suit all 32 weights. A finer or longer list gains
# less than 1%.
_STRETCH = [0.2 * step for step in range(-10, 6)]


@dataclass(frozen=True, slots=True)
class Fit:
    """One block's numbers, as they are stored."""

    d: F32  # [n, 1], float16 values
    dmin: F32  # [n, 1], float16 values
    scales: U8  # [n, 8], 0..63
    minimums: U8  # [n, 8], 0..63
    codes: U8  # [n, 8, 32], 0..top


def fitted(groups: F32, top: int) -> Fit:
    """Each group's line by search, six-bit rounding, then d and dmin together by least squares.

    Args:
        groups: ``float32 [n, 8, 32]``.
        top: the largest code.
    """
    scale, minimum = _lines(groups, top)
    d = as_half(scale.max(axis=1, keepdims=True) / np.float32(63))
    dmin = as_half(minimum.max(axis=1, keepdims=True) / np.float32(63))
    scales = np.clip(np.rint(scale * inverse(d)), 0, 63)
    minimums = np.clip(np.rint(minimum * inverse(dmin)), 0, 63)
    codes = _codes(groups, d * scales, dmin * minimums, top)
    d, dmin = _refit(groups, scales, minimums, codes)
    codes = _codes(groups, d * scales, dmin * minimums, top)
    return Fit(d, dmin, scales.astype(np.uint8), minimums.astype(np.uint8), codes.astype(np.uint8))


def flat(groups: F32, top: int) -> Fit:
    """One symmetric step for the whole block: the fallback when rounding scales and minimums costs more.

    Scale and minimum fields of 32 make d exactly a 32nd of the step; the middle code (8 or 16) then reads as zero.
    """
    middle = (top + 1) // 2
    step = np.abs(groups).max(axis=(1, 2))[:, None] / np.float32(middle - 1)
    d = as_half(step / np.float32(32))
    fields = np.full((len(groups), 8), 32, dtype=np.uint8)
    lines = np.broadcast_to(d * np.float32(32), fields.shape)
    codes = _codes(groups, lines, lines * np.float32(middle), top)
    return Fit(d, d * np.float32(middle), fields, fields, codes.astype(np.uint8))


def _codes(groups: F32, scale: F32, minimum: F32, top: int) -> F32:
    """The nearest codes for given lines: ``[n, 8, 32]``."""
    codes: F32 = np.clip(np.rint((groups + minimum[..., None]) * inverse(scale)[..., None]), 0, top)
    return codes


def _lines(groups: F32, top: int) -> tuple[F32, F32]:
    """Best scale and minimum of each group before rounding, ``[n, 8]`` each; minimums are never negative.

    Everything is done on ``y = (x - low) / span`` in 0..1, where the sums are well conditioned whatever the offset.
    There a line is ``y = a * code + c``, so the minimum is ``-(low + c * span)``, and c is at most -low / span.
    """
    low = np.minimum(groups.min(axis=-1, keepdims=True), np.float32(0))
    span = groups.max(axis=-1, keepdims=True) - low
    y = ratio(groups - low, np.broadcast_to(span, groups.shape))
    ceiling = ratio(-low, span)
    count = np.float32(groups.shape[-1])
    sum_y = y.sum(axis=-1, keepdims=True)
    least = np.full_like(span, np.inf)
    best_a, best_c = np.zeros_like(span), np.zeros_like(span)
    for stretch in _STRETCH:
        q = np.clip(np.rint(y * np.float32(top + stretch)), 0, top)
        sum_q, sum_qq, sum_qy = q.sum(axis=-1, keepdims=True), dot(q, q), dot(q, y)
        a = ratio(count * sum_qy - sum_q * sum_y, count * sum_qq - sum_q * sum_q)
        c = np.minimum((sum_y - a * sum_q) / count, ceiling)
        a = ratio(sum_qy - c * sum_q, sum_qq)
        rest = y - a * q - c
        error = dot(rest, rest)
        better = (error < least) & (a >= 0)
        least = np.where(better, error, least)
        best_a, best_c = np.where(better, a, best_a), np.where(better, c, best_c)
    minimum = np.maximum(-(low + best_c * span), np.float32(0))
    return (best_a * span)[..., 0], minimum[..., 0]


def _refit(groups: F32, scales: F32, minimums: F32, codes: F32) -> tuple[F32, F32]:
    """The d and dmin that fit the whole block best, given everything else: two normal equations, in float64."""
    n = len(groups)
    u = (scales[..., None] * codes).reshape(n, -1).astype(np.float64)
    v = -np.repeat(minimums, groups.shape[-1], axis=1).astype(np.float64)
    x = groups.reshape(n, -1).astype(np.float64)
    uu, vv, uv = _sum(u, u), _sum(v, v), _sum(u, v)
    xu, xv = _sum(x, u), _sum(x, v)
    # With no minimums, no codes, or the two in proportion, one of the numbers says it all.
    determinant = uu * vv - uv * uv
    both = determinant > 1e-6 * uu * vv
    alone = _quotient(xu, uu), np.where(uu > 0, 0, _quotient(xv, vv))
    d = np.where(both, _quotient(xu * vv - xv * uv, determinant), alone[0])
    dmin = np.where(both, _quotient(xv * uu - xu * uv, determinant), alone[1])
    return _stored(d), _stored(dmin)


def _stored(values: F64) -> F32:
    return as_half(np.clip(values, -65504, 65504).astype(np.float32))


def _quotient(a: F64, b: F64) -> F64:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _sum(a: F64, b: F64) -> F64:
    total: F64 = np.einsum("ij,ij->i", a, b)[:, None]
    return total
