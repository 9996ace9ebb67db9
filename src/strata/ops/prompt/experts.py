"""Routed experts of a prompt: products of a tile of pairs with one expert's matrices, decoded in registers.

A layer's experts are 2.5 billion weights; written out in float16 they would be 5 GB of traffic each way, 2.4 ms on an
H200, against 0.3 ms to read them as they are. So a program decodes its piece of the matrix itself, and takes as many
rows as chose the expert, up to a tile: at 4,096 rows 80 on average, at 512 rows 10.
"""

import triton
import triton.language as tl

from strata.ops.device import silu
from strata.ops.matvec.decoders import lexicon
from strata.ops.prompt.decode import fetched, fragment, row_of
from strata.ops.prompt.halves import SCALE, to_half
from strata.ops.prompt.multiply import dot

ROWS = tl.constexpr(64)
"""Of a matrix, that a program takes."""

DEPTH = tl.constexpr(128)
"""Numbers of K in a step: four blocks, one to each of four neighbouring threads."""


@triton.jit(do_not_specialize=["low", "high", "N", "B", "topk"])
def gate_up(slots_base, stride, up_at, gate_grid, up_grid, gate_scale, up_scale, x, h, slot_of, pairs, tile_expert,
            tile_first, tile_size, starts, low, high, N, B, topk, GATE: tl.constexpr, UP: tl.constexpr,
            SCALED: tl.constexpr, BM: tl.constexpr, EVEN: tl.constexpr):  # fmt: skip
    """``h[i] = silu(gate x) * (up x)`` for pair number ``pairs[i]``. Grid: (cdiv(N, ROWS), most tiles of the ranks).

    Args:
        slots_base, stride, up_at: experts' slots, bytes from one to the next, from gate to up.
        gate_grid, up_grid: grids of the types, or any pointer.
        gate_scale, up_scale: float32 [E], unused unless SCALED.
        x: float16 [T, a multiple of DEPTH], as `strata.ops.prompt.order.order` leaves rows of 32 B.
        h: float16 [T * topk, N], out, in the order of ``pairs``.
        slot_of: int32 [E].
        pairs, tile_expert, tile_first, tile_size, starts: as `strata.ops.prompt.plan.arrange` leaves them.
        low, high: ranks from the first on, and before the last, whose experts are computed.
        BM: most pairs of a tile.
        EVEN: B is a multiple of 4.
    """
    tile = tl.program_id(1) + tl.load(starts + low)
    if tile < tl.load(starts + high):
        expert = tl.load(tile_expert + tile)
        base = slots_base + tl.load(slot_of + expert).to(tl.int64) * stride
        first, size = tl.load(tile_first + tile), tl.load(tile_size + tile)
        m = tl.arange(0, BM)
        row = tl.load(pairs + first + tl.minimum(m, size - 1)) // topk
        top = tl.program_id(0) * ROWS
        k = tl.arange(0, DEPTH)
        at = x + row[None, :] * ((B + 3) // 4 * DEPTH) + k[:, None]
        one, other = 1.0, 1.0
        if SCALED:
            one, other = tl.load(gate_scale + expert), tl.load(up_scale + expert)
        gate, up = tl.zeros((ROWS, BM), tl.float32), tl.zeros((ROWS, BM), tl.float32)
        gate_words, up_words = lexicon(GATE, gate_grid, 128), lexicon(UP, up_grid, 128)
        last = (B - 1) // 4 * 4
        gate_raw = fetched(GATE, base, top, 0, N, B, EVEN)
        up_raw = fetched(UP, base + up_at, top, 0, N, B, EVEN)
        for block in range(0, B, 4):
            rows = tl.load(at + block * 32)
            # The next step's weights are on their way while this one's are decoded and multiplied.
            following = tl.minimum(block + 4, last)
            gate_next = fetched(GATE, base, top, following, N, B, EVEN)
            up_next = fetched(UP, base + up_at, top, following, N, B, EVEN)
            gate_tile = fragment(GATE, gate_raw, gate_words, one, top, block, N, B)
            up_tile = fragment(UP, up_raw, up_words, other, top, block, N, B)
            gate = dot(gate_tile, rows, gate)
            up = dot(up_tile, rows, up)
            gate_raw, up_raw = gate_next, up_next
        out = to_half(silu(gate * (1.0 / SCALE)) * (up * (1.0 / SCALE)))
        n = top + row_of(tl.arange(0, ROWS))
        tl.store(h + (first + m)[None, :] * N + n[:, None], out, mask=(m[None, :] < size) & (n[:, None] < N))


@triton.jit(do_not_specialize=["low", "high", "N", "B"])
def down(slots_base, stride, down_at, grid, scale, h, y, slot_of, pairs, tile_expert, tile_first, tile_size, starts,
         low, high, N, B, KIND: tl.constexpr, SCALED: tl.constexpr, BM: tl.constexpr,
         EVEN: tl.constexpr):  # fmt: skip
    """``y[pairs[i]] = down h[i]``: float16 [T * topk, N], without the router's weight. Grid: as for `gate_up`.

    h: float16 [T * topk, a multiple of DEPTH], as `strata.ops.prompt.order.order` leaves rows of 32 B.
    """
    tile = tl.program_id(1) + tl.load(starts + low)
    if tile < tl.load(starts + high):
        expert = tl.load(tile_expert + tile)
        w = slots_base + tl.load(slot_of + expert).to(tl.int64) * stride + down_at
        first, size = tl.load(tile_first + tile), tl.load(tile_size + tile)
        m = tl.arange(0, BM)
        top = tl.program_id(0) * ROWS
        k = tl.arange(0, DEPTH)
        at = h + (first + tl.minimum(m, size - 1))[None, :] * ((B + 3) // 4 * DEPTH) + k[:, None]
        unit = 1.0
        if SCALED:
            unit = tl.load(scale + expert)
        total = tl.zeros((ROWS, BM), tl.float32)
        words = lexicon(KIND, grid, 128)
        last = (B - 1) // 4 * 4
        raw = fetched(KIND, w, top, 0, N, B, EVEN)
        for block in range(0, B, 4):
            rows = tl.load(at + block * 32)
            later = fetched(KIND, w, top, tl.minimum(block + 4, last), N, B, EVEN)
            total = dot(fragment(KIND, raw, words, unit, top, block, N, B), rows, total)
            raw = later
        out = to_half(total * (1.0 / SCALE))
        n = top + row_of(tl.arange(0, ROWS))
        pair = tl.load(pairs + first + tl.minimum(m, size - 1))
        tl.store(y + pair[None, :] * N + n[:, None], out, mask=(m[None, :] < size) & (n[:, None] < N))


@triton.jit(do_not_specialize=["topk"])
def combine(y, shares, shared, shared_shares, counts, out, N, topk, BLOCK: tl.constexpr):
    """``out[t] = p_0 y_0 + p_1 y_1 + ..`` in the router's order, the shared expert last. Grid: (N / BLOCK, most rows).

    Args:
        y: float16 [T * topk, N]; shares: float32 [T, topk].
        shared: float16 [T, N]; shared_shares: float32 [T].
        counts: int32, its first is T.
        out: float32 [T, N], out.
    """
    t = tl.program_id(1)
    if t < tl.load(counts):
        n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = n < N
        total = tl.zeros((BLOCK,), tl.float32)
        for j in range(topk):
            pair = t * topk + j
            total += tl.load(shares + pair) * tl.load(y + pair * N + n, mask=inside, other=0.0).to(tl.float32)
        last = tl.load(shared + t * N + n, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + t * N + n, total + tl.load(shared_shares + t) * last, mask=inside)
