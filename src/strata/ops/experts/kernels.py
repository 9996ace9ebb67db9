"""Kernels of grouped experts. A program takes a few rows of one expert's matrix for all pairs that chose it.

How many pairs there are is read from device memory, and one of three bodies runs, for 1, 2, and up to 4 of them. More
than four go through the last body twice, the second time with weights from the cache: eight rows rarely agree on an
expert by more, and a body for eight would set the registers, and so the speed, of all. `MOST` leaves out bodies that
a window of few rows cannot need. Where a body has more places than there are pairs, the last pair is computed again
and stores the same bytes.
"""

import triton
import triton.language as tl

from strata.ops.experts.swiglu import swiglu
from strata.ops.matvec.order import row_sums


@triton.jit
def _pairs(pairs, entry, first, count, T: tl.constexpr):
    result = ()
    for t in tl.static_range(T):
        result = result + (tl.load(pairs + entry * 8 + tl.minimum(first + t, count - 1)),)
    return result


@triton.jit
def _gate_up(matrices, grids, scales, x, h, group, sizes, start, GATE: tl.constexpr, UP: tl.constexpr, T: tl.constexpr,
             RR: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr, SCALED: tl.constexpr):  # fmt: skip
    pairs, entry, count, expert = group
    top, N, B, PAIRS, topk = sizes
    mine = _pairs(pairs, entry, start, count, T)
    x_rows = ()
    for t in tl.static_range(T):
        x_rows = x_rows + (tl.where(mine[t] < PAIRS, mine[t] // topk, mine[t] - PAIRS),)
    sums = row_sums(GATE, UP, T, RR, H, 16, 0, EVEN, U, matrices, grids, x, x_rows, top, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            gate, up = sums[2 * t * RR + r], sums[(2 * t + 1) * RR + r]
            if SCALED:
                gate, up = gate * tl.load(scales[0] + expert), up * tl.load(scales[1] + expert)
            row = top + r * H + tl.arange(0, H)
            tl.store(h + mine[t] * N + row, swiglu(gate, up), mask=row < N)


@triton.jit(do_not_specialize=["N", "B", "PAIRS", "topk"])
def gate_up_kernel(slots_base, stride, up_at, gate_grid, up_grid, q, s, z, gate_scale, up_scale, h, slots, counts,
                   pairs, totals, experts, N, B, PAIRS, topk, MOST: tl.constexpr, GATE: tl.constexpr,
                   UP: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr,
                   SCALED: tl.constexpr):  # fmt: skip
    """``h[pair] = silu(gate x) * (up x)`` for every pair of every resident expert: ``float32 [pairs, N]``.

    Gate and up lie in an expert's slot, up ``up_at`` bytes behind gate. Program (row tile, entry of the plan).
    """
    entry = tl.program_id(1)
    if entry < tl.load(totals):
        base = slots_base + tl.load(slots + entry).to(tl.int64) * stride
        count = tl.load(counts + entry)
        w, grids, scales, x = (base, base + up_at), (gate_grid, up_grid), (gate_scale, up_scale), (q, s, z)
        group = pairs, entry, count, tl.load(experts + entry)
        sizes = tl.program_id(0) * (RR * H), N, B, PAIRS, topk
        if MOST == 1:
            _gate_up(w, grids, scales, x, h, group, sizes, 0, GATE, UP, 1, RR, H, EVEN, U, SCALED)
        elif count == 1:
            _gate_up(w, grids, scales, x, h, group, sizes, 0, GATE, UP, 1, RR, H, EVEN, U, SCALED)
        elif MOST == 2:
            _gate_up(w, grids, scales, x, h, group, sizes, 0, GATE, UP, 2, RR, H, EVEN, U, SCALED)
        elif count == 2:
            _gate_up(w, grids, scales, x, h, group, sizes, 0, GATE, UP, 2, RR, H, EVEN, U, SCALED)
        else:
            for start in range(0, count, 4):
                _gate_up(w, grids, scales, x, h, group, sizes, start, GATE, UP, 4, RR, H, EVEN, U, SCALED)


@triton.jit
def _down(w, grid, scale, x, y, group, sizes, start, KIND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr,
          H: tl.constexpr, L: tl.constexpr, STEPS: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr,
          SCALED: tl.constexpr):  # fmt: skip
    pairs, entry, count, expert = group
    top, N, B = sizes
    mine = _pairs(pairs, entry, start, count, T)
    sums = row_sums(KIND, None, T, RR, H, L, STEPS, EVEN, U, (w,), (grid,), x, mine, top, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            value = sums[t * RR + r]
            if SCALED:
                value = value * tl.load(scale + expert)
            row = top + r * H + tl.arange(0, H)
            tl.store(y + mine[t] * N + row, value, mask=row < N)


@triton.jit(do_not_specialize=["N", "B"])
def down_kernel(slots_base, stride, down_at, grid, q, s, z, scale, y, slots, counts, pairs, totals, experts, N, B,
                MOST: tl.constexpr, KIND: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr,
                STEPS: tl.constexpr, EVEN: tl.constexpr, U: tl.constexpr, SCALED: tl.constexpr):  # fmt: skip
    """``y[pair] = down h[pair]`` for every pair of every resident expert: ``float32 [pairs, N]``; no router weight."""
    entry = tl.program_id(1)
    if entry < tl.load(totals):
        w = slots_base + tl.load(slots + entry).to(tl.int64) * stride + down_at
        count = tl.load(counts + entry)
        group = pairs, entry, count, tl.load(experts + entry)
        x, sizes = (q, s, z), (tl.program_id(0) * (RR * H), N, B)
        if MOST == 1:
            _down(w, grid, scale, x, y, group, sizes, 0, KIND, 1, RR, H, L, STEPS, EVEN, U, SCALED)
        elif count == 1:
            _down(w, grid, scale, x, y, group, sizes, 0, KIND, 1, RR, H, L, STEPS, EVEN, U, SCALED)
        elif MOST == 2:
            _down(w, grid, scale, x, y, group, sizes, 0, KIND, 2, RR, H, L, STEPS, EVEN, U, SCALED)
        elif count == 2:
            _down(w, grid, scale, x, y, group, sizes, 0, KIND, 2, RR, H, L, STEPS, EVEN, U, SCALED)
        else:
            for start in range(0, count, 4):
                _down(w, grid, scale, x, y, group, sizes, start, KIND, 4, RR, H, L, STEPS, EVEN, U, SCALED)


@triton.jit(do_not_specialize=["topk"])
def combine_kernel(y, weights, shared, shared_weights, out, N, topk, SHARED: tl.constexpr, BLOCK: tl.constexpr):
    """``out[t] = ((0 + p_0 y_0) + p_1 y_1) + ...`` in the router's order, the shared expert last: ``[T, N]``."""
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
