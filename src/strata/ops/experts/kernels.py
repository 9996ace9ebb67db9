"""Kernels of grouped experts. A program takes a few rows of one expert's matrix for all pairs that chose it.

How many pairs there are is read from device memory, and one of two bodies runs, for one of them and for two. More go
through the second as often as it takes, from the second time on with weights from the cache: rows rarely agree on an
expert by more, and a larger body would set the registers, and so the speed, of all. Where all pairs are known to be
together, as those of a shared expert are, there is one body (`LEAST` and `MOST`). Where a body has more places than
there are pairs, the last pair is computed again and stores the same bytes.

What a program has to look up in the plan it loads at once, before it knows whether its entry is there: one latency
instead of four.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.experts.swiglu import swiglu
from strata.ops.matvec.order import row_sums


@triton.jit
def _entry(lists, entry):
    """Number of resident entries; and of this one slot, expert, pairs."""
    slots, counts, pairs, totals, experts = lists
    return tl.load(totals), tl.load(slots + entry), tl.load(counts + entry), tl.load(experts + entry), pairs + entry * 8


@triton.jit
def _pairs(pairs, first, count, T: tl.constexpr):
    """Pairs ``first`` to ``first + T`` of an entry, those that are not there as the last one."""
    result = (tl.load(pairs + first),)
    for t in tl.static_range(1, T):
        pair = tl.load(pairs + first + t)
        result = result + (tl.where(first + t < count, pair, result[t - 1]),)
    return result


@triton.jit
def _gate_up(matrices, grids, scales, x, h, group, sizes, start, GATE: tl.constexpr, UP: tl.constexpr, T: tl.constexpr,
             ONE: tl.constexpr, TOPK: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr,
             B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    pairs, count, expert = group
    top, N, PAIRS = sizes
    mine = _pairs(pairs, start, count, T)
    x_rows = ()
    for t in tl.static_range(T):
        if ONE:
            x_rows = x_rows + (0,)
        else:
            x_rows = x_rows + (tl.where(mine[t] < PAIRS, mine[t] // TOPK, mine[t] - PAIRS),)
    sums = row_sums(GATE, UP, T, RR, H, L, D, PDL, matrices, grids, x, x_rows, top, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            gate, up = sums[2 * t * RR + r], sums[(2 * t + 1) * RR + r]
            if SCALED:
                gate, up = gate * tl.load(scales[0] + expert), up * tl.load(scales[1] + expert)
            row = top + r * H + tl.arange(0, H)
            tl.store(h + mine[t] * N + row, swiglu(gate, up), mask=row < N)


@triton.jit(do_not_specialize=["N", "PAIRS"])
def gate_up_kernel(slots_base, stride, up_at, gate_grid, up_grid, q, s, z, gate_scale, up_scale, h, slots, counts,
                   pairs, totals, experts, N, PAIRS, LEAST: tl.constexpr, MOST: tl.constexpr, ROWS: tl.constexpr,
                   TOPK: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
                   L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
                   PDL: tl.constexpr):  # fmt: skip
    """``h[pair] = silu(gate x) * (up x)`` for every pair of every resident expert: ``float32 [pairs, N]``.

    Gate and up lie in an expert's slot, up ``up_at`` bytes behind gate. Program (row tile, entry of the plan).
    """
    release(PDL)
    wait(PDL)
    resident, slot, count, expert, mine = _entry((slots, counts, pairs, totals, experts), tl.program_id(1))
    if tl.program_id(1) < resident:
        base = slots_base + slot.to(tl.int64) * stride
        w, grids, scales, x = (base, base + up_at), (gate_grid, up_grid), (gate_scale, up_scale), (q, s, z)
        group, sizes = (mine, count, expert), (tl.program_id(0) * (RR * H), N, PAIRS)
        ONE: tl.constexpr = ROWS == 1
        if LEAST == 1 and (MOST == 1 or count == 1):
            _gate_up(w, grids, scales, x, h, group, sizes, 0, GATE, UP, 1, ONE, TOPK, RR, H, L, B, D, SCALED, PDL)
        elif MOST > 1:
            for start in range(0, count, MOST):
                _gate_up(
                    w, grids, scales, x, h, group, sizes, start, GATE, UP, MOST, ONE, TOPK, RR, H, L, B, D, SCALED, PDL
                )


@triton.jit
def _down(w, grid, scale, x, y, group, sizes, start, KIND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr,
          H: tl.constexpr, L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
          PDL: tl.constexpr):  # fmt: skip
    pairs, count, expert = group
    top, N = sizes
    mine = _pairs(pairs, start, count, T)
    sums = row_sums(KIND, None, T, RR, H, L, D, PDL, (w,), (grid,), x, mine, top, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            value = sums[t * RR + r]
            if SCALED:
                value = value * tl.load(scale + expert)
            row = top + r * H + tl.arange(0, H)
            tl.store(y + mine[t] * N + row, value, mask=row < N)


@triton.jit(do_not_specialize=["N"])
def down_kernel(slots_base, stride, down_at, grid, q, s, z, scale, y, slots, counts, pairs, totals, experts, N,
                LEAST: tl.constexpr, MOST: tl.constexpr, KIND: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
                L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
                PDL: tl.constexpr):  # fmt: skip
    """``y[pair] = down h[pair]`` for every pair of every resident expert: ``float32 [pairs, N]``; no router weight."""
    release(PDL)
    wait(PDL)
    resident, slot, count, expert, mine = _entry((slots, counts, pairs, totals, experts), tl.program_id(1))
    if tl.program_id(1) < resident:
        w = slots_base + slot.to(tl.int64) * stride + down_at
        group, x, sizes = (mine, count, expert), (q, s, z), (tl.program_id(0) * (RR * H), N)
        if LEAST == 1 and (MOST == 1 or count == 1):
            _down(w, grid, scale, x, y, group, sizes, 0, KIND, 1, RR, H, L, B, D, SCALED, PDL)
        elif MOST > 1:
            for start in range(0, count, MOST):
                _down(w, grid, scale, x, y, group, sizes, start, KIND, MOST, RR, H, L, B, D, SCALED, PDL)


@triton.jit(do_not_specialize=["topk"])
def combine_kernel(y, weights, shared, shared_weights, out, N, topk, SHARED: tl.constexpr, BLOCK: tl.constexpr,
                   PDL: tl.constexpr):  # fmt: skip
    """``out[t] = ((0 + p_0 y_0) + p_1 y_1) + ...`` in the router's order, the shared expert last: ``[T, N]``."""
    release(PDL)
    wait(PDL)
    t = tl.program_id(1)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    total = tl.zeros((BLOCK,), tl.float32)
    for j in range(0, topk):
        pair = t * topk + j
        total = total + tl.load(weights + pair) * tl.load(y + pair * N + n, mask=inside, other=0.0)
    if SHARED:
        total = total + tl.load(shared_weights + t) * tl.load(shared + t * N + n, mask=inside, other=0.0)
    tl.store(out + t * N + n, total, mask=inside)
