"""The order of a quantised product on a tile: steps of blocks, 16 lanes, the halving tree (docs/numerics.md).

A tile is ``[H, L]``: H rows of the matrix, L neighbouring blocks of each, one block to a thread. With L = 16 a step is one block of
every lane. With L = 4 four accumulators take turns: lanes 0-3, 4-7, 8-11, 12-15; that suits rows of few blocks, such as the 20 of
an expert's down matrix, where steps of 16 would leave three threads in eight idle.

A program computes several tiles at once, of rows further down (`RR`) and of further matrices (`KINDS`), for `T` rows of
activations: weights are decoded once for all of these, activations loaded once for all tiles.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders import MINIMUM, contribution, decode
from strata.ops.matvec.decoders.memory import load, load_4


@triton.jit
def _step(KINDS: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, matrices, tables, x, x_rows, row, block, mask, N, B):
    """Contributions of one step: a tuple of ``[H, L]`` over activations, matrices, tiles."""
    H: tl.constexpr = block.shape[0]
    M: tl.constexpr = len(KINDS)
    decoded = ()
    for m in tl.static_range(M):
        for r in tl.static_range(RR):
            here = tl.minimum(row + r * H, N - 1)
            decoded = decoded + (decode(KINDS[m], matrices[m], tables[m], here, block, mask, N, B),)
    q, s, z = x
    parts = ()
    for t in tl.static_range(T):
        at = x_rows[t] * B + block
        low = load_4(q + at * 8, mask)
        high = load_4(q + at * 8 + 4, mask)
        scale = load(s + at, mask)
        total = scale
        if KINDS[0] in MINIMUM or KINDS[M - 1] in MINIMUM:
            total = load(z + at, mask)
        for m in tl.static_range(M):
            for r in tl.static_range(RR):
                one = decoded[m * RR + r]
                parts = parts + (contribution(KINDS[m], one[0], one[1], one[2], low, high, scale, total),)
    return parts


@triton.jit
def _added(sums, parts, COUNT: tl.constexpr):
    result = ()
    for i in tl.static_range(COUNT):
        result = result + (sums[i] + parts[i],)
    return result


@triton.jit
def _zeros(COUNT: tl.constexpr, H: tl.constexpr, L: tl.constexpr):
    result = ()
    for _ in tl.static_range(COUNT):
        result = result + (tl.zeros((H, L), tl.float32),)
    return result


@triton.jit
def _sums_16(KINDS: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr,
             matrices, tables, x, x_rows, row, N, B):  # fmt: skip
    COUNT: tl.constexpr = T * RR * len(KINDS)
    lane = tl.zeros((H, 16), tl.int32) + tl.arange(0, 16)[None, :]
    sums = _zeros(COUNT, H, 16)
    for first in tl.range(0, B, 16, loop_unroll_factor=U):
        block = first + lane
        if EVEN:
            mask = None
        else:
            mask = block < B
        parts = _step(KINDS, T, RR, matrices, tables, x, x_rows, row, block, mask, N, B)
        sums = _added(sums, parts, COUNT)
    result = ()
    for i in tl.static_range(COUNT):
        a = tl.sum(tl.reshape(sums[i], (H, 2, 8)), 1)
        a = tl.sum(tl.reshape(a, (H, 2, 4)), 1)
        a = tl.sum(tl.reshape(a, (H, 2, 2)), 1)
        result = result + (tl.sum(a, 1),)
    return result


@triton.jit
def _sums_4(KINDS: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, STEPS: tl.constexpr,
            matrices, tables, x, x_rows, row, N, B):  # fmt: skip
    COUNT: tl.constexpr = T * RR * len(KINDS)
    lane = tl.zeros((H, 4), tl.int32) + tl.arange(0, 4)[None, :]
    a, b, c, d = _zeros(COUNT, H, 4), _zeros(COUNT, H, 4), _zeros(COUNT, H, 4), _zeros(COUNT, H, 4)
    for i in tl.static_range(STEPS):
        block = 4 * i + lane
        parts = _step(KINDS, T, RR, matrices, tables, x, x_rows, row, block, None, N, B)
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
def row_sums(KINDS: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, STEPS: tl.constexpr,
             EVEN: tl.constexpr, U: tl.constexpr, matrices, tables, x, x_rows, first, N, B):  # fmt: skip
    """Finished sums of rows ``first`` to ``first + RR H``, for every matrix and every row of activations.

    Args:
        KINDS: block type of each matrix.
        T: rows of activations.
        RR: tiles below one another.
        H: rows of a tile.
        STEPS: 0 for steps of 16 blocks; else steps of 4, of which there are this many, exactly B / 4.
        EVEN: B is a multiple of 16.
        U: steps of 16 unrolled.
        matrices: byte pointers to planes of ``[N, 32 B]``.
        tables: their grids, or any pointer.
        x: pointers to q as words ``[rows, 8 B]``, s and z ``[rows, B]``.
        x_rows: which T rows of x.
        first: row of the matrices; rows behind the last one repeat it, their sums are not to be stored.

    Returns:
        A tuple of ``[H]`` over activations, matrices, tiles, in that order.
    """
    row = first + tl.arange(0, H)[:, None]
    if STEPS == 0:
        result = _sums_16(KINDS, T, RR, H, EVEN, U, matrices, tables, x, x_rows, row, N, B)
    else:
        result = _sums_4(KINDS, T, RR, H, STEPS, matrices, tables, x, x_rows, row, N, B)
    return result
