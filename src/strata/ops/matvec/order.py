"""The order of a quantised product on a tile: steps of blocks, 16 lanes, the halving tree (docs/numerics.md).

A tile is H rows of the matrix, L neighbouring blocks of each, one block to a thread. With L = 16 a step is one block
of every lane. With L = 4 or 8 several accumulators take turns, lanes 0-3, 4-7, 8-11, 12-15, or 0-7, 8-15; that suits
rows of few blocks, such as the 20 of an expert's down matrix, where steps of 16 would leave three threads in eight
idle. With L = 32 a step is two blocks of every lane, added one after the other: twice as many warps for a matrix of
few rows.

A program computes several tiles at once, of rows further down (`RR`) and of a second matrix (`SECOND`), for `T` rows of
activations: weights are decoded once for all of these, activations loaded once for all tiles.

Steps are unrolled, and the weights of ``D`` steps are loaded before the first is decoded: a step that waits for its
own weights costs a latency of memory, five of them most of a small product. The first ``D`` steps' loads come before
`wait`, which lets them run while the kernel before still does (`strata.ops.dependent`).
"""

import triton
import triton.language as tl

from strata.ops.dependent import wait
from strata.ops.matvec.decoders import contribution, fetch, form, lexicon, unpack
from strata.ops.matvec.decoders.memory import load, load_4, place

MOST = tl.constexpr(24)
"""Steps that are unrolled; longer rows are taken in pieces of 16."""


@triton.jit
def _places(RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr, GAP: tl.constexpr, top, first, N, B: tl.constexpr):
    found = ()
    for r in tl.static_range(RR):
        found = found + (place(top + r * GAP, first, N, B, H, L),)
    return found


@triton.jit
def _fetched(KIND: tl.constexpr, SECOND: tl.constexpr, RR: tl.constexpr, OFF: tl.constexpr, L: tl.constexpr,
             EVEN: tl.constexpr, matrices, places, size):  # fmt: skip
    """One step's weights as they lie in memory: a tuple over matrices, tiles."""
    raws = ()
    for m in tl.static_range(1 if SECOND is None else 2):
        for r in tl.static_range(RR):
            raws = raws + (fetch(SECOND if m else KIND, matrices[m], size, places[r], OFF, L, EVEN),)
    return raws


@triton.jit
def _parts(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, OFF: tl.constexpr,
           L: tl.constexpr, EVEN: tl.constexpr, FROM: tl.constexpr, raws, tables, x, x_rows, places, here,
           B: tl.constexpr):  # fmt: skip
    """Contributions of one step: a tuple of ``[H L]`` over activations, matrices, tiles."""
    M: tl.constexpr = 1 if SECOND is None else 2
    decoded = ()
    for m in tl.static_range(M):
        for r in tl.static_range(RR):
            decoded = decoded + (unpack(SECOND if m else KIND, raws[FROM + m * RR + r], tables[m], places[r]),)
    q, s, z = x
    parts = ()
    for t in tl.static_range(T):
        low = load_4(q + x_rows[t] * (B * 8), here, OFF, L, EVEN)
        high = load_4(q + (x_rows[t] * (B * 8) + B * 4), here, OFF, L, EVEN)
        scale = load(s + x_rows[t] * B, here, OFF, L, EVEN)
        total = scale
        if form(KIND) == "minimum" or form(SECOND) == "minimum":
            total = load(z + x_rows[t] * B, here, OFF, L, EVEN)
        for m in tl.static_range(M):
            for r in tl.static_range(RR):
                one = decoded[m * RR + r]
                parts = parts + (contribution(SECOND if m else KIND, one[0], one[1], one[2], low, high, scale, total),)
    return parts


@triton.jit
def _plus(total, part, H: tl.constexpr, L: tl.constexpr):
    if L == 32:
        both = tl.permute(tl.reshape(part, (H, 2, 16)), (0, 2, 1))
        earlier, later = tl.split(tl.reshape(both, (H * 16, 2)))
        result = (total + earlier) + later
    else:
        result = total + part
    return result


@triton.jit
def _added(sums, parts, COUNT: tl.constexpr, TURN: tl.constexpr, TURNS: tl.constexpr, H: tl.constexpr,
           L: tl.constexpr):  # fmt: skip
    """Sums of all turns, one after the other, with a step's parts added to those whose turn it is."""
    result = ()
    for i in tl.static_range(COUNT * TURNS):
        if i // COUNT == TURN:
            result = result + (_plus(sums[i], parts[i - TURN * COUNT], H, L),)
        else:
            result = result + (sums[i],)
    return result


@triton.jit
def _trees(sums, COUNT: tl.constexpr, TURNS: tl.constexpr, H: tl.constexpr):
    """Sixteen lanes to one, for every tile: ``[H]``."""
    result = ()
    for i in tl.static_range(COUNT):
        if TURNS == 4:
            a = (sums[i] + sums[2 * COUNT + i]) + (sums[COUNT + i] + sums[3 * COUNT + i])
        elif TURNS == 2:
            a = sums[i] + sums[COUNT + i]
        else:
            a = tl.sum(tl.reshape(sums[i], (H, 2, 8)), 1)
        if TURNS < 4:
            a = tl.sum(tl.reshape(a, (H, 2, 4)), 1)
        a = tl.sum(tl.reshape(a, (H, 2, 2)), 1)
        result = result + (tl.sum(a, 1),)
    return result


@triton.jit
def _piece(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
           L: tl.constexpr, GAP: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr, D: tl.constexpr,
           PDL: tl.constexpr, matrices, tables, x, x_rows, top, first, N, B: tl.constexpr, sums):  # fmt: skip
    """``STEPS`` steps from block ``first`` on; all blocks but those of the last step exist, and these if EVEN."""
    M: tl.constexpr = RR * (1 if SECOND is None else 2)
    TURNS: tl.constexpr = 16 // L if L < 16 else 1
    places, here = _places(RR, H, L, GAP, top, first, N, B), place(0, first, 1, B, H, L)
    raws = ()
    for i in tl.static_range(min(D, STEPS)):
        raws = raws + _fetched(KIND, SECOND, RR, i * L, L, EVEN or i < STEPS - 1, matrices, places, N * B)
    wait(PDL)
    for i in tl.static_range(STEPS):
        if i + D < STEPS:
            raws = raws + _fetched(KIND, SECOND, RR, (i + D) * L, L, EVEN or i + D < STEPS - 1, matrices, places, N * B)
        parts = _parts(
            KIND, SECOND, T, RR, i * L, L, EVEN or i < STEPS - 1, i * M, raws, tables, x, x_rows, places, here, B
        )
        sums = _added(sums, parts, T * M, i % TURNS, TURNS, H, L)
    return sums


@triton.jit
def row_sums(KIND: tl.constexpr, SECOND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
             L: tl.constexpr, D: tl.constexpr, PDL: tl.constexpr, matrices, tables, x, x_rows, top, N,
             B: tl.constexpr, FAR: tl.constexpr = 0):  # fmt: skip
    """Finished sums of rows ``top`` to ``top + RR H``, for every matrix and every row of activations.

    Args:
        KIND: block type of the matrix.
        SECOND: of a second one of the same shape, or None.
        T: rows of activations.
        RR: tiles below one another.
        H: rows of a tile.
        L: blocks of a step, 4, 8, 16 or 32.
        D: steps whose weights are loaded ahead, at least 1.
        PDL: activations are there only after `strata.ops.dependent.wait`, which this calls.
        matrices: byte pointers to planes of ``[N, 32 B]``.
        tables: their grids, or any pointer.
        x: pointers to q as words ``[rows, 2, B, 4]``, s and z ``[rows, B]``.
        x_rows: which T rows of x.
        top: first row of the matrices; rows behind the last one repeat it, their sums are not to be stored.
        N: rows of the matrices.
        B: blocks of a row.
        FAR: rows from one tile to the next where they do not follow one another, else 0.

    Returns:
        A tuple of ``[H]`` over activations, matrices, tiles, in that order.
    """
    COUNT: tl.constexpr = T * RR * (1 if SECOND is None else 2)
    TURNS: tl.constexpr = 16 // L if L < 16 else 1
    STEPS: tl.constexpr = (B + L - 1) // L
    GAP: tl.constexpr = FAR or H
    LANES: tl.constexpr = min(16, L)
    lexica = (lexicon(KIND, tables[0], H * L),)
    if SECOND is not None:
        lexica = lexica + (lexica[0] if SECOND == KIND else lexicon(SECOND, tables[1], H * L),)
    sums = ()
    for _ in tl.static_range(COUNT * TURNS):
        sums = sums + (tl.zeros((H * LANES,), tl.float32),)
    if STEPS <= MOST:
        sums = _piece(
            KIND, SECOND, T, RR, H, L, GAP, STEPS, B % L == 0, D, PDL, matrices, lexica, x, x_rows, top, 0, N, B, sums
        )
    else:
        WHOLE: tl.constexpr = STEPS // 16 * 16
        for first in range(0, WHOLE * L, 16 * L):
            sums = _piece(
                KIND, SECOND, T, RR, H, L, GAP, 16, WHOLE * L <= B, D, PDL, matrices, lexica, x, x_rows, top, first,
                N, B, sums,
            )  # fmt: skip
        if STEPS > WHOLE:
            sums = _piece(
                KIND, SECOND, T, RR, H, L, GAP, STEPS - WHOLE, B % L == 0, D, PDL, matrices, lexica, x, x_rows, top,
                WHOLE * L, N, B, sums,
            )  # fmt: skip
    return _trees(sums, COUNT, TURNS, H)
