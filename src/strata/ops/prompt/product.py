"""Rows of activations times a matrix written out in float16, on tensor cores.

One accumulator is carried through K in rising order, without splitting it; a row never meets another one. So a row's
bytes depend on the row and the matrix alone, whatever the tile (docs/numerics.md).
"""

import triton
import triton.language as tl

from strata.ops.device import silu
from strata.ops.prompt.halves import FINE, SCALE, split, to_half
from strata.ops.prompt.multiply import dot


@triton.jit
def sums(x, w, total, row, column, count, N, K, BK: tl.constexpr, EVEN: tl.constexpr):
    """``total + x[row] @ w[column].T`` with float32 sums; indices behind the last one repeat it.

    Args:
        x: float16 [count, K].
        w: float16 [N, K].
        total: float32 [BM, BN].
        row: int32 [BM]; column: int32 [BN].
        EVEN: K is a multiple of BK.
    """
    k = tl.arange(0, BK)
    row, column = tl.minimum(row, count - 1), tl.minimum(column, N - 1)
    a = x + row[:, None] * K + k[None, :]
    b = w + column[None, :] * K + k[:, None]
    for first in range(0, K, BK):
        if EVEN:
            total = dot(tl.load(a + first), tl.load(b + first), total)
        else:
            left = K - first
            total = dot(
                tl.load(a + first, mask=k[None, :] < left, other=0.0),
                tl.load(b + first, mask=k[:, None] < left, other=0.0),
                total,
            )
    return total


@triton.jit
def place(BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr, count, N):
    """First row and column of a program's tile: ``GROUP`` tiles of rows go side by side, so that they share columns."""
    down, across = tl.cdiv(count, BM), tl.cdiv(N, BN)
    band = GROUP * across
    first = tl.program_id(0) // band * GROUP
    tall = tl.minimum(down - first, GROUP)
    inside = tl.program_id(0) % band
    return (first + inside % tall) * BM, inside // tall * BN


@triton.jit(do_not_specialize=["N"])
def product(x, w, counts, out, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
            EVEN: tl.constexpr):  # fmt: skip
    """``out = x @ w.T``. Grid: (cdiv(most rows, BM) * cdiv(N, BN),).

    Args:
        x: float16 [T, K].
        w: float16 [N, K], times `SCALE`.
        counts: int32, its first is T.
        out: float32 or float16 [T, N], out.
    """
    count = tl.load(counts)
    if tl.program_id(0) < tl.cdiv(count, BM) * tl.cdiv(N, BN):
        top, left = place(BM, BN, GROUP, count, N)
        row, column = top + tl.arange(0, BM), left + tl.arange(0, BN)
        total = sums(x, w, tl.zeros((BM, BN), tl.float32), row, column, count, N, K, BK, EVEN) * (1.0 / SCALE)
        at = out + row[:, None] * N + column[None, :]
        inside = (row[:, None] < count) & (column[None, :] < N)
        if out.dtype.element_ty == tl.float16:
            tl.store(at, to_half(total), mask=inside)
        else:
            tl.store(at, total, mask=inside)


@triton.jit(do_not_specialize=["R"])
def low_rank(x, w, counts, low, strengths, R, K, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
             BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr):  # fmt: skip
    """The read's narrow rows, and the raw write-back strengths beside them. Grid: as for `product` with N = R + S.

    Args:
        x: float16 [T, K], normalised streams.
        w: float16 [R + S, K], times `SCALE`: down, then inject.
        counts: int32, its first is T.
        low: float16 [T, R], out: silu of the sums over S.
        strengths: float32 [T, S], out.
    """
    count = tl.load(counts)
    N = R + S
    if tl.program_id(0) < tl.cdiv(count, BM) * tl.cdiv(N, BN):
        top, left = place(BM, BN, GROUP, count, N)
        row, column = top + tl.arange(0, BM), left + tl.arange(0, BN)
        total = sums(x, w, tl.zeros((BM, BN), tl.float32), row, column, count, N, K, BK, EVEN) * (1.0 / SCALE)
        there = row[:, None] < count
        at = row[:, None]
        narrow = silu(total / S)
        tl.store(low + at * R + column[None, :], to_half(narrow), mask=there & (column[None, :] < R))
        beyond = column[None, :] - R
        tl.store(strengths + at * S + beyond, total, mask=there & (beyond >= 0) & (beyond < S))


@triton.jit
def gated_mean(low, w, xn, counts, mean, rest, H: tl.constexpr, S: tl.constexpr, R: tl.constexpr,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
               EVEN: tl.constexpr):  # fmt: skip
    """The streams' mean under gates ``sigmoid(low @ w.T)``. Grid: (cdiv(most rows, BM) * cdiv(H, BN),).

    Args:
        low: float16 [T, R].
        w: float16 [S*H, R], times `SCALE`.
        xn: float16 [T, S*H], normalised streams.
        counts: int32, its first is T.
        mean: float16 [T, H], out; rest: float16 [T, H], out, what it lacks (`strata.ops.prompt.halves.split`).
    """
    count = tl.load(counts)
    if tl.program_id(0) < tl.cdiv(count, BM) * tl.cdiv(H, BN):
        top, left = place(BM, BN, GROUP, count, H)
        row, column = top + tl.arange(0, BM), left + tl.arange(0, BN)
        inside = (row[:, None] < count) & (column[None, :] < H)
        total = tl.zeros((BM, BN), tl.float32)
        for stream in tl.static_range(S):
            nothing = tl.zeros((BM, BN), tl.float32)
            gate = sums(low, w + stream * H * R, nothing, row, column, count, H, R, BK, EVEN) * (1.0 / SCALE)
            at = xn + row[:, None] * (S * H) + stream * H + column[None, :]
            value = tl.load(at, mask=inside, other=0.0)
            total += value.to(tl.float32) / (1.0 + tl.exp(-gate))
        high, lower = split(total / S)
        at = row[:, None] * H + column[None, :]
        tl.store(mean + at, high, mask=inside)
        tl.store(rest + at, lower, mask=inside)


@triton.jit(do_not_specialize=["N"])
def exact(x, x_rest, w, w_rest, counts, out, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
          GROUP: tl.constexpr, EVEN: tl.constexpr):  # fmt: skip
    """``out = x @ w.T`` of operands of 22 bits: the router's, whose choice hangs on small differences.

    Grid: as for `product`.

    Args:
        x, x_rest: float16 [T, K]; w, w_rest: float16 [N, K], times `SCALE`; each a number and what it lacks.
        counts: int32, its first is T.
        out: float32 [T, N], out.
    """
    count = tl.load(counts)
    if tl.program_id(0) < tl.cdiv(count, BM) * tl.cdiv(N, BN):
        top, left = place(BM, BN, GROUP, count, N)
        row, column = top + tl.arange(0, BM), left + tl.arange(0, BN)
        fine = sums(x, w_rest, tl.zeros((BM, BN), tl.float32), row, column, count, N, K, BK, EVEN)
        fine = sums(x_rest, w, fine, row, column, count, N, K, BK, EVEN)
        total = sums(x, w, tl.zeros((BM, BN), tl.float32), row, column, count, N, K, BK, EVEN)
        total = (total + fine * (1.0 / FINE)) * (1.0 / SCALE)
        inside = (row[:, None] < count) & (column[None, :] < N)
        tl.store(out + row[:, None] * N + column[None, :], total, mask=inside)
