"""The router's choice on a GPU (model spec, section 9), and the plan of a window's experts in the same launch.

A row's logits lie in the registers of one warp, 32 side by side in each of several tensors, as integers in the order
of the floats: so the largest of all lanes and its place are one instruction each from sm_80 on. Nothing passes through
memory between choice and plan.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import sigmoid
from strata.ops.experts.plan import write_plan

LANES = tl.constexpr(32)
"""Most experts a row may choose; the plan gives each row 16 places, or 32 if it needs them."""

_TAKEN = tl.constexpr(-(1 << 31))
_NAN = tl.constexpr(-0x7FC00001)  # of the key that turns into a number that is none; below that of -inf


@triton.jit
def _key(x):
    """Integers in the order of floats. Zeros are one number, and what is no number comes last, behind -inf."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(x == 0.0, 0, bits)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, _NAN, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def _number(key):
    """The float of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _largest(keys, COUNT: tl.constexpr):
    """Elementwise, in a tree; COUNT is a power of two."""
    left = keys
    for level in tl.static_range(COUNT.bit_length() - 1):
        half = ()
        for i in tl.static_range(COUNT >> (level + 1)):
            half = half + (tl.maximum(left[2 * i], left[2 * i + 1]),)
        left = half
    return left[0]


@triton.jit
def _choose(
    logits, experts, weights, shared, row, inside,
    E: tl.constexpr, TOPK: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Choose for some rows, of which those ``inside`` exist.

    Args:
        row: int32 [rows]. inside: of each.
        COUNT: power of two, 32 COUNT is at least E.

    Returns:
        Experts, int32 [rows, 32], of which the first TOPK columns hold any.
    """
    lane = tl.arange(0, LANES)[None, :]
    base = row[:, None] * (E + 1)
    keys = ()
    for i in tl.static_range(COUNT):
        e = lane + i * LANES
        there = inside[:, None] & (e < E)
        keys = keys + (tl.where(there, _key(tl.load(logits + base + e, mask=there, other=0.0)), _TAKEN),)
    own_gate = tl.load(logits + row * (E + 1) + E, mask=inside, other=0.0)
    ids = tl.zeros([row.shape[0], LANES], tl.int32)
    shares = tl.zeros([row.shape[0], LANES], tl.float32)
    total = tl.zeros([row.shape[0]], tl.float32)
    top = total
    for j in tl.static_range(TOPK):
        best = tl.max(_largest(keys, COUNT), 1)
        found = tl.full([row.shape[0], LANES], COUNT * LANES, tl.int32)
        for i in tl.static_range(COUNT - 1, -1, -1):
            found = tl.where(keys[i] == best[:, None], lane + i * LANES, found)
        place = tl.min(found, 1)
        left = ()
        for i in tl.static_range(COUNT):
            left = left + (tl.where(lane + i * LANES == place[:, None], _TAKEN, keys[i]),)
        keys = left
        # Softmax over all and a new share among the chosen is softmax over the chosen: exp(x - top) in both.
        value = _number(best)
        if j == 0:
            top = value
        share = tl.exp(value - top)
        total += share
        ids = tl.where(lane == j, place[:, None], ids)
        shares = tl.where(lane == j, share[:, None], shares)
    kept = inside[:, None] & (lane < TOPK)
    tl.store(experts + row[:, None] * TOPK + lane, ids, mask=kept)
    tl.store(weights + row[:, None] * TOPK + lane, shares / total[:, None], mask=kept)
    tl.store(shared + row, sigmoid(own_gate), mask=inside)
    return ids


@triton.jit
def route(
    logits, experts, weights, shared, E: tl.constexpr, TOPK: tl.constexpr, COUNT: tl.constexpr, PDL: tl.constexpr
):
    """The TOPK most probable experts of each row and their share, falling; of equals the lower. Grid: (T,).

    Args:
        logits: float32 [T, E + 1], the shared expert's own gate last.
        experts: int32 [T, TOPK], out.
        weights: float32 [T, TOPK], out; a row's sum to one.
        shared: float32 [T], out: weight of the shared expert.
        COUNT: power of two, 32 COUNT is at least E.
    """
    release(PDL)
    wait(PDL)
    row = tl.program_id(0) + tl.arange(0, 1)
    _choose(logits, experts, weights, shared, row, row >= 0, E, TOPK, COUNT)


@triton.jit(do_not_specialize=["shared_slot"])
def route_and_plan(
    logits, experts, weights, shared, slot_of, entries, slots, counts, pairs, totals, shared_slot,
    E: tl.constexpr, TOPK: tl.constexpr, COUNT: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr,
    PLACES: tl.constexpr, M: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """`route` for all T rows of a window, and the plan of what they chose. Grid: (1,), as many warps as ROWS.

    Args:
        logits, experts, weights, shared, E, TOPK, COUNT: as for `route`.
        slot_of, entries, slots, counts, pairs, totals, M: as for `strata.ops.experts.plan.plan_kernel`.
        shared_slot: slot of the shared expert or negative, as there.
        ROWS: power of two, at least T.
        PLACES: power of two, at least TOPK, 16 or 32: of a row among the pairs.
    """
    release(PDL)
    wait(PDL)
    row = tl.arange(0, ROWS)
    ids = _choose(logits, experts, weights, shared, row, row < T, E, TOPK, COUNT)
    ids = tl.reshape(tl.sum(tl.reshape(ids, (ROWS, LANES // PLACES, PLACES)), 1), (ROWS * PLACES,))
    i = tl.arange(0, ROWS * PLACES)
    j = i % PLACES
    valid = (i < T * PLACES) & (j < TOPK)
    write_plan(
        ids, i // PLACES * TOPK + j, valid, slot_of, entries, slots, counts, pairs, totals, T * TOPK, T, E,
        shared_slot, ROWS * PLACES, M, ROWS == 1,
    )  # fmt: skip
