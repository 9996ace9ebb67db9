"""Kernels of grouped experts. A program takes a few rows of one expert's matrix for all pairs that chose it.

How many pairs there are is read from device memory, and one of two bodies runs, for one of them and for two. More go
through the second as often as it takes, from the second time on with weights from the cache: rows rarely agree on an
expert by more, and a larger body would set the registers, and so the speed, of all. Where all pairs are known to be
together, as those of a plan for a shared expert are, there is one body (`LEAST` and `MOST`). Where a body has more
places than there are pairs, the last pair is computed again and stores the same bytes.

What a program has to look up in the plan it loads at once, before it knows whether its entry is there: one latency
instead of four. A shared expert that is computed beside the others (`BESIDE`) needs no plan: its programs come first,
and load weights while the kernel before still runs.
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
def _rows(before, first, count: tl.constexpr, T: tl.constexpr):
    """The same of a shared expert: its pairs are the window's rows, behind ``before`` others."""
    result = ()
    for t in tl.static_range(T):
        result = result + (before + tl.minimum(first + t, count - 1),)
    return result


@triton.jit
def _gate_up(matrices, grids, scales, x, h, mine, expert, sizes, GATE: tl.constexpr, UP: tl.constexpr,
             T: tl.constexpr, ROWS: tl.constexpr, TOPK: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
             L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    top, N, PAIRS = sizes
    x_rows = ()
    for t in tl.static_range(T):
        if ROWS == 1:
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
                   pairs, totals, experts, N, PAIRS, beside, beside_up_at, beside_gate_grid, beside_up_grid,
                   LEAST: tl.constexpr, MOST: tl.constexpr, ROWS: tl.constexpr, TOPK: tl.constexpr, GATE: tl.constexpr,
                   UP: tl.constexpr, BESIDE: tl.constexpr, BESIDE_UP: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
                   L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
                   PDL: tl.constexpr):  # fmt: skip
    """``h[pair] = silu(gate x) * (up x)`` for every pair of every resident expert: ``float32 [pairs, N]``.

    Gate and up lie in an expert's slot, up ``up_at`` bytes behind gate. Program (row tile, entry of the plan). With
    ``BESIDE`` and ``BESIDE_UP``, types of a shared expert's gate and up, entries are counted from 1 and 0 is that
    expert, whose rows follow behind all pairs.
    """
    release(PDL)
    entry = tl.program_id(1)
    sizes, scales, x = (tl.program_id(0) * (RR * H), N, PAIRS), (gate_scale, up_scale), (q, s, z)
    if BESIDE is not None:
        if entry == 0:
            FEW: tl.constexpr = min(MOST, ROWS)
            AHEAD: tl.constexpr = min(D, 2)  # its codes are longer: five steps would take everyone's registers
            w, grids = (beside, beside + beside_up_at), (beside_gate_grid, beside_up_grid)
            for start in range(0, ROWS, FEW):
                mine = _rows(PAIRS, start, ROWS, FEW)
                _gate_up(
                    w, grids, scales, x, h, mine, 0, sizes, BESIDE, BESIDE_UP, FEW, ROWS, TOPK, RR, H, L, B, AHEAD,
                    False, PDL,
                )  # fmt: skip
        entry -= 1
    if BESIDE is None or entry >= 0:
        wait(PDL)
        resident, slot, count, expert, group = _entry((slots, counts, pairs, totals, experts), entry)
        if entry < resident:
            base = slots_base + slot.to(tl.int64) * stride
            w, grids = (base, base + up_at), (gate_grid, up_grid)
            if LEAST == 1 and (ROWS == 1 or (MOST > 1 and count == 1)):
                mine = _pairs(group, 0, count, 1)
                _gate_up(
                    w, grids, scales, x, h, mine, expert, sizes, GATE, UP, 1, ROWS, TOPK, RR, H, L, B, D, SCALED, PDL
                )
            else:
                for start in range(0, count, MOST):
                    mine = _pairs(group, start, count, MOST)
                    _gate_up(
                        w, grids, scales, x, h, mine, expert, sizes, GATE, UP, MOST, ROWS, TOPK, RR, H, L, B, D, SCALED,
                        PDL,
                    )  # fmt: skip


@triton.jit
def _down(w, grid, scale, x, y, mine, expert, sizes, KIND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr,
          H: tl.constexpr, L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
          PDL: tl.constexpr):  # fmt: skip
    top, N = sizes
    sums = row_sums(KIND, None, T, RR, H, L, D, PDL, (w,), (grid,), x, mine, top, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            value = sums[t * RR + r]
            if SCALED:
                value = value * tl.load(scale + expert)
            row = top + r * H + tl.arange(0, H)
            tl.store(y + mine[t] * N + row, value, mask=row < N)


@triton.jit(do_not_specialize=["N", "PAIRS"])
def down_kernel(slots_base, stride, down_at, grid, q, s, z, scale, y, slots, counts, pairs, totals, experts, N, PAIRS,
                beside, beside_grid, LEAST: tl.constexpr, MOST: tl.constexpr, ROWS: tl.constexpr, KIND: tl.constexpr,
                BESIDE: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr, B: tl.constexpr,
                D: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """``y[pair] = down h[pair]`` for every pair of every resident expert: ``float32 [pairs, N]``; no router weight.

    ``beside`` is where the down matrix of a shared expert is, of type ``BESIDE``; else as in `gate_up_kernel`.
    """
    release(PDL)
    entry = tl.program_id(1)
    x, sizes = (q, s, z), (tl.program_id(0) * (RR * H), N)
    if BESIDE is not None:
        if entry == 0:
            FEW: tl.constexpr = min(MOST, ROWS)
            for start in range(0, ROWS, FEW):
                mine = _rows(PAIRS, start, ROWS, FEW)
                _down(beside, beside_grid, scale, x, y, mine, 0, sizes, BESIDE, FEW, RR, H, L, B, D, False, PDL)
        entry -= 1
    if BESIDE is None or entry >= 0:
        wait(PDL)
        resident, slot, count, expert, group = _entry((slots, counts, pairs, totals, experts), entry)
        if entry < resident:
            w = slots_base + slot.to(tl.int64) * stride + down_at
            if LEAST == 1 and (ROWS == 1 or (MOST > 1 and count == 1)):
                mine = _pairs(group, 0, count, 1)
                _down(w, grid, scale, x, y, mine, expert, sizes, KIND, 1, RR, H, L, B, D, SCALED, PDL)
            else:
                for start in range(0, count, MOST):
                    mine = _pairs(group, start, count, MOST)
                    _down(w, grid, scale, x, y, mine, expert, sizes, KIND, MOST, RR, H, L, B, D, SCALED, PDL)


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
