"""The order of a quantised product on a tile: steps of blocks, 16 lanes, the halving tree (docs/numerics.md).

A tile is H rows of the matrix, L neighbouring blocks of each, one block to a thread. With L = 16 a step is one block
of every lane. With L = 4 four accumulators take turns: lanes 0-3, 4-7, 8-11, 12-15; that suits rows of few blocks,
such as the 20 of an expert's down matrix, where steps of 16 would leave three threads in eight idle. With L = 32 a
step is two blocks of every lane, added one after the other: twice as many warps for a matrix of few rows.

A program computes several tiles at once, of rows further down (`RR`) and of a second matrix (`SECOND`), for `T` rows of
activations: weights are decoded once for all of these, activations loaded once for all tiles.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders import contribution, decode, form
from strata.ops.matvec.decoders.memory import load, load_4


@triton.jit
def _step(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr,
          EVEN: tl.constexpr, matrices, tables, x, x_rows, top, first, N, B):  # fmt: skip
    """Contributions of one step: a tuple of ``[H L]`` over activations, matrices, tiles."""
    M: tl.constexpr = 1 if SECOND is None else 2
    i = tl.arange(0, H * L)
    block = first + i % L
    if EVEN:
        mask = None
    else:
        mask = block < B
    decoded = ()
    for m in tl.static_range(M):
        for r in tl.static_range(RR):
            at = tl.minimum(top + r * H + i // L, N - 1) * B + block
            decoded = decoded + (
                decode(SECOND if m else KIND, matrices[m], tables[m], top + r * H, first, at, mask, N, B, L),
            )
    q, s, z = x
    parts = ()
    for t in tl.static_range(T):
        low = load_4(q + x_rows[t] * (B * 8), 0, first, block, mask, 1, B, L)
        high = load_4(q + x_rows[t] * (B * 8) + B * 4, 0, first, block, mask, 1, B, L)
        scale = load(s + x_rows[t] * B + block, mask)
        total = scale
        if form(KIND) == "minimum" or form(SECOND) == "minimum":
            total = load(z + x_rows[t] * B + block, mask)
        for m in tl.static_range(M):
            for r in tl.static_range(RR):
                one = decoded[m * RR + r]
                parts = parts + (contribution(SECOND if m else KIND, one[0], one[1], one[2], low, high, scale, total),)
    return parts


@triton.jit
def _added(sums, parts, COUNT: tl.constexpr):
    result = ()
    for i in tl.static_range(COUNT):
        result = result + (sums[i] + parts[i],)
    return result


@triton.jit
def _zeros(COUNT: tl.constexpr, SIZE: tl.constexpr):
    result = ()
    for _ in tl.static_range(COUNT):
        result = result + (tl.zeros((SIZE,), tl.float32),)
    return result


@triton.jit
def _trees(sums, COUNT: tl.constexpr, H: tl.constexpr):
    """Sixteen lanes to one, for every tile: ``[16 H]`` to ``[H]``."""
    result = ()
    for i in tl.static_range(COUNT):
        a = tl.sum(tl.reshape(sums[i], (H, 2, 8)), 1)
        a = tl.sum(tl.reshape(a, (H, 2, 4)), 1)
        a = tl.sum(tl.reshape(a, (H, 2, 2)), 1)
        result = result + (tl.sum(a, 1),)
    return result


@triton.jit
def _sums_16(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
             EVEN: tl.constexpr, U: tl.constexpr, matrices, tables, x, x_rows, top, N, B):  # fmt: skip
    COUNT: tl.constexpr = T * RR * (1 if SECOND is None else 2)
    sums = _zeros(COUNT, H * 16)
    for first in tl.range(0, B, 16, loop_unroll_factor=U):
        parts = _step(KIND, SECOND, T, RR, H, 16, EVEN, matrices, tables, x, x_rows, top, first, N, B)
        sums = _added(sums, parts, COUNT)
    return _trees(sums, COUNT, H)


@triton.jit
def _sums_32(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
             EVEN: tl.constexpr, U: tl.constexpr, matrices, tables, x, x_rows, top, N, B):  # fmt: skip
    COUNT: tl.constexpr = T * RR * (1 if SECOND is None else 2)
    sums = _zeros(COUNT, H * 16)
    for first in tl.range(0, B, 32, loop_unroll_factor=U):
        parts = _step(KIND, SECOND, T, RR, H, 32, EVEN, matrices, tables, x, x_rows, top, first, N, B)
        added = ()
        for i in tl.static_range(COUNT):
            both = tl.permute(tl.reshape(parts[i], (H, 2, 16)), (0, 2, 1))
            earlier, later = tl.split(tl.reshape(both, (H * 16, 2)))
            added = added + ((sums[i] + earlier) + later,)
        sums = added
    return _trees(sums, COUNT, H)


@triton.jit
def _sums_4(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
            STEPS: tl.constexpr, matrices, tables, x, x_rows, top, N, B):  # fmt: skip
    COUNT: tl.constexpr = T * RR * (1 if SECOND is None else 2)
    a, b, c, d = _zeros(COUNT, H * 4), _zeros(COUNT, H * 4), _zeros(COUNT, H * 4), _zeros(COUNT, H * 4)
    for i in tl.static_range(STEPS):
        parts = _step(KIND, SECOND, T, RR, H, 4, True, matrices, tables, x, x_rows, top, 4 * i, N, B)
        if i % 4 == 0:
            a = _added(a, parts, COUNT)
        elif i % 4 == 1:
            b = _added(b, parts, COUNT)
        elif i % 4 == 2:
            c = _added(c, parts, COUNT)
        else:
            d = _added(d, parts, COUNT)
    result = ()
    for i in tl.static_range(COUNT):
        lanes = (a[i] + c[i]) + (b[i] + d[i])
        result = result + (tl.sum(tl.sum(tl.reshape(lanes, (H, 2, 2)), 1), 1),)
    return result


@triton.jit
def row_sums(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
             L: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr, matrices, tables, x, x_rows,
             top, N, B):  # fmt: skip
    """Finished sums of rows ``top`` to ``top + RR H``, for every matrix and every row of activations.

    Args:
        KIND: block type of the matrix.
        SECOND: of a second one of the same shape, or None.
        T: rows of activations.
        RR: tiles below one another.
        H: rows of a tile.
        L: blocks of a step, 4, 16 or 32.
        STEPS: with steps of 4, how many, exactly B / 4.
        EVEN: B is a multiple of L.
        U: steps of 16 or 32 unrolled.
        matrices: byte pointers to planes of ``[N, 32 B]``.
        tables: their grids, or any pointer.
        x: pointers to q as words ``[rows, 2, B, 4]``, s and z ``[rows, B]``.
        x_rows: which T rows of x.
        top: first row of the matrices; rows behind the last one repeat it, their sums are not to be stored.

    Returns:
        A tuple of ``[H]`` over activations, matrices, tiles, in that order.
    """
    if L == 16:
        result = _sums_16(KIND, SECOND, T, RR, H, EVEN, U, matrices, tables, x, x_rows, top, N, B)
    elif L == 32:
        result = _sums_32(KIND, SECOND, T, RR, H, EVEN, U, matrices, tables, x, x_rows, top, N, B)
    else:
        result = _sums_4(KIND, SECOND, T, RR, H, STEPS, matrices, tables, x, x_rows, top, N, B)
    return result
