"""Matrices written out in float16, times `SCALE`, for products of many rows: a dense one is read and decoded once."""

import triton
import triton.language as tl

from strata.ops.prompt.decode import weights
from strata.ops.prompt.halves import SCALE, split, to_half


@triton.jit(do_not_specialize=["N", "B"])
def planes(w, table, scale, out, N, B, KIND: tl.constexpr, SCALED: tl.constexpr, H: tl.constexpr, L: tl.constexpr,
           EVEN: tl.constexpr):  # fmt: skip
    """Grid: (N / H, B / L).

    Args:
        w: planes of ``[N, 32 B]``.
        table: the type's grid, or any pointer.
        scale: float32 [1] of the whole matrix; unused unless SCALED.
        out: float16 [N, 32 B], out.
    """
    top, first = tl.program_id(0) * H, tl.program_id(1) * L
    unit = 1.0
    if SCALED:
        unit = tl.load(scale)
    tile = weights(KIND, w, table, unit, top, first, N, B, H, L, EVEN)
    row = top + tl.arange(0, H)[:, None]
    column = first * 32 + tl.arange(0, 32 * L)[None, :]
    inside = (row < N) & (column < 32 * B)
    tl.store(out + row.to(tl.int64) * (32 * B) + column, tile, mask=inside)


@triton.jit(do_not_specialize=["size"])
def floats(w, out, size, BLOCK: tl.constexpr):
    """A float matrix of ``size`` numbers. Grid: (size / BLOCK,)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(w + i, mask=i < size, other=0.0).to(tl.float32)
    tl.store(out + i, to_half(x * SCALE), mask=i < size)


@triton.jit(do_not_specialize=["size"])
def finely(w, out, rest, size, BLOCK: tl.constexpr):
    """A float matrix of ``size`` numbers, and what it lacks in float16. Grid: (size / BLOCK,)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    high, lower = split(tl.load(w + i, mask=i < size, other=0.0).to(tl.float32) * SCALE)
    tl.store(out + i, high, mask=i < size)
    tl.store(rest + i, lower, mask=i < size)
