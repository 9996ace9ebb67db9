"""A recurrent layer's window on a GPU in one kernel: convolution, norms, delta rule, norm and gate. And its commit.

A program holds one value head's state in registers, reads it once, runs the window's rows through it one after
another, and writes it once. Of a token's 4.8 GB the states are 226 MB (36 layers, read and written once): 54 us at the
4.2 TB/s of an H200, so 1.5 us a layer. The state was left by earlier windows, so where a launch may begin early it is
read while the projections are still computed. What comes before the rule is a few hundred numbers a row, so that every
value head convolves and normalises its key head's rows for itself.

A window does not touch the committed state: it leaves the state after its last row in a spare place. Committing all
rows then only exchanges the two places; committing fewer replays them into the spare place first (`replay`).
A row's arithmetic does not depend on how many rows follow it, so any n rows leave what n single windows leave.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import sigmoid, silu, softplus, store_quantised

WARPS = 8
"""Of `window` and of `replay`: sums over keys go from warp to warp, and both must add in one order."""


@triton.jit
def _convolved(u, tail, taps, at, begin, channel, channels: tl.constexpr, TAPS: tl.constexpr):
    """A row's channels after convolution and silu: the last TAPS rows up to `at`, of the tail where before `begin`.

    Args:
        taps: float32 [channels here, TAPS].
        channel: [channels here].
    """
    row = at - (TAPS - 1) + tl.arange(0, TAPS)[None, :]
    before = row < begin
    old = tl.load(tail + (row - begin + TAPS - 1) * channels + channel[:, None], mask=before, other=0.0)
    new = tl.load(u + row * channels + channel[:, None], mask=row >= begin, other=0.0)
    return silu(tl.sum(taps * tl.where(before, old, new), 1))


@triton.jit
def _unit(x):
    """Of length one."""
    return x / tl.sqrt_rn(tl.sum(x * x, 0) + 1e-6)


@triton.jit
def _step(state, key, value, decay, strength):
    """The state ``[keys, values]`` after a row."""
    state = state * decay
    delta = (value - tl.sum(state * key[:, None], 0)) * strength
    return state + key[:, None] * delta[None, :]


@triton.jit
def window(
    u, gates, z, tails, slots, first, taps, a, dt, states, places, spares, norm, eps,
    kept, mixed, decay, strength, gated, q, s, sums, layer,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, TAPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Everything between the projections. Grid: (NV, conversations of the window).

    Args:
        u: float32 [T, channels], the projection before the convolution: heads of q, of k, of v.
        gates: float32 [T, 2 NV], projections: alpha, then beta.
        z: float32 [T, NV*D], projection: the gate of the output.
        tails: float32 [slots, LAYERS, TAPS-1, channels], the rows before the window.
        slots: int32 [conversations].
        first: int32 [conversations + 1], each conversation's first row, and the number of rows.
        taps: float32 [channels, TAPS], TAPS a power of two.
        a, dt: float32 [NV].
        states: float32 [all places, LAYERS, NV, D, D], indexed [.., key, value].
        places: int32 [conversations], where the committed states are.
        spares: int32 [conversations], where the states after the window go.
        norm: float32 [D], of the output.
        eps: of that norm.
        kept: float32 [T, channels], out: u, for `shift`.
        mixed: float32 [T, channels], out: k of length one and v after the convolution, for `replay`; q is not written.
        decay, strength: float32 [T, NV], out, for `replay`.
        gated: float32 [T, NV*D], out: the rule's output normalised by head and gated; q, s, sums: the same quantised.
        layer: among the recurrent ones.
    """
    release(PDL)
    head, conversation = tl.program_id(0), tl.program_id(1)
    channels: tl.constexpr = (2 * NK + NV) * D
    each: tl.constexpr = NV * D * D
    lane = tl.arange(0, D)
    tap = tl.arange(0, TAPS)
    source = head % NK
    of_q, of_k, of_v = source * D + lane, (NK + source) * D + lane, (2 * NK + head) * D + lane
    taps_q = tl.load(taps + of_q[:, None] * TAPS + tap[None, :])
    taps_k = tl.load(taps + of_k[:, None] * TAPS + tap[None, :])
    taps_v = tl.load(taps + of_v[:, None] * TAPS + tap[None, :])
    rate, shift_ = tl.load(a + head), tl.load(dt + head)
    weight = tl.load(norm + lane)
    begin, end = tl.load(first + conversation), tl.load(first + conversation + 1)
    tail = tails + (tl.load(slots + conversation).to(tl.int64) * LAYERS + layer) * (TAPS - 1) * channels
    cell = head * D * D + lane[:, None] * D + lane[None, :]
    here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
    there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
    state = tl.load(here + cell)
    wait(PDL)
    for row in range(begin, end):
        query = _unit(_convolved(u, tail, taps_q, row, begin, of_q, channels, TAPS)) * (D**-0.5)
        key = _unit(_convolved(u, tail, taps_k, row, begin, of_k, channels, TAPS))
        value = _convolved(u, tail, taps_v, row, begin, of_v, channels, TAPS)
        fades = tl.exp(rate * softplus(tl.load(gates + row * 2 * NV + head) + shift_))
        learns = sigmoid(tl.load(gates + row * 2 * NV + NV + head))
        at = row * NV * D + head * D + lane
        gate = sigmoid(tl.load(z + at))
        state = _step(state, key, value, fades, learns)
        x = tl.sum(state * query[:, None], 0)
        x = x / tl.sqrt_rn(tl.sum(x * x, 0) / D + eps) * weight * gate
        tl.store(gated + at, x)
        store_quantised(q, s, sums, row, x, head * D // 32, (head + 1) * D // 32, NV * D // 32, D // 32)
        line = row * channels
        tl.store(kept + line + of_v, tl.load(u + line + of_v))
        tl.store(mixed + line + of_v, value)
        tl.store(decay + row * NV + head, fades)
        tl.store(strength + row * NV + head, learns)
        if head < NK:
            tl.store(kept + line + of_q, tl.load(u + line + of_q))
            tl.store(kept + line + of_k, tl.load(u + line + of_k))
            tl.store(mixed + line + of_k, key)
    tl.store(there + cell, state)


@triton.jit
def replay(
    mixed, decay, strength, states, places, spares, first, accepted, total,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Leave the states after the accepted rows where the window left those after all of them.

    Grid: (NV, conversations, LAYERS). Does nothing where all rows were accepted, or none.

    Args:
        mixed: float32 [LAYERS, total, channels], as `window` leaves it; decay, strength: [LAYERS, total, NV].
        states, places, spares, first: as for `window`.
        accepted: int32 [conversations].
        total: rows of the window.
    """
    release(PDL)
    head, conversation, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(first + conversation)
    wait(PDL)
    rows = tl.load(accepted + conversation)
    if (rows > 0) & (rows < tl.load(first + conversation + 1) - begin):
        channels: tl.constexpr = (2 * NK + NV) * D
        each: tl.constexpr = NV * D * D
        lane = tl.arange(0, D)
        mixed += layer * total * channels
        decay += layer * total * NV
        strength += layer * total * NV
        cell = head * D * D + lane[:, None] * D + lane[None, :]
        here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
        there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
        state = tl.load(here + cell)
        for row in range(begin, begin + rows):
            key = tl.load(mixed + row * channels + (NK + head % NK) * D + lane)
            value = tl.load(mixed + row * channels + (2 * NK + head) * D + lane)
            fades, learns = tl.load(decay + row * NV + head), tl.load(strength + row * NV + head)
            state = _step(state, key, value, fades, learns)
        tl.store(there + cell, state)


@triton.jit
def shift(
    u, tails, slots, first, accepted, total, LAYERS: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Move the convolutions' tails past the accepted rows. Grid: (channels / BLOCK, conversations, LAYERS).

    Args:
        u: float32 [LAYERS, total, channels].
        tails, slots, first: as for `window`.
        accepted, total: as for `replay`.
    """
    release(PDL)
    conversation, layer = tl.program_id(1), tl.program_id(2)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    slot = tl.load(slots + conversation).to(tl.int64)
    tail = tails + (slot * LAYERS + layer) * (TAPS - 1) * CHANNELS
    u += (layer * total + tl.load(first + conversation)) * CHANNELS
    wait(PDL)
    rows = tl.load(accepted + conversation)
    for j in tl.static_range(TAPS - 1):  # rising, so that what is still needed is not yet overwritten
        row = rows + j - (TAPS - 1)
        old = tl.load(tail + (row + TAPS - 1) * CHANNELS + channel, mask=inside & (row < 0), other=0.0)
        new = tl.load(u + row * CHANNELS + channel, mask=inside & (row >= 0), other=0.0)
        tl.store(tail + j * CHANNELS + channel, tl.where(row < 0, old, new), mask=inside)
