"""The delta rule of a window on a GPU, and its commit.

A program holds a share of one value head's state in registers, all 128 keys of some values, reads it once, runs the
window's rows through it one after another, and writes it once. Of a token's 4.8 GB the states are 226 MB (36 layers,
read and written once): 54 us at the 4.2 TB/s of an H200, so 1.5 us a layer.

A window does not touch the committed state: it leaves the state after its last row in a spare place. Committing all
rows then only exchanges the two places; committing fewer replays them into the spare place first (`replay`).
A row's arithmetic does not depend on how many rows follow it, so any n rows leave what n single windows leave.
"""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, silu, softplus, store_quantised

WARPS = 4

VALUES = 32
"""Values of a head a program takes: more programs, each with fewer rows of registers to fill."""


@triton.jit
def prepare(
    u, gates, tails, slots, first, owner, taps, a, dt, mixed, decay, strength,
    layer, LAYERS: tl.constexpr,
    NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Convolve, normalise, and form the gates of every row. Grid: (T, 2 NK + NV), a head each.

    Args:
        u: float32 [T, channels], the projection before the convolution: heads of q, of k, of v.
        gates: float32 [T, 2 NV], projections: alpha, then beta.
        tails: float32 [slots, LAYERS, TAPS-1, channels], the rows before the window.
        slots: int32 [conversations].
        first: int32 [conversations + 1], each conversation's first row, and the number of rows.
        owner: int32 [T], each row's conversation.
        taps: float32 [channels, TAPS].
        a, dt: float32 [NV].
        mixed: float32 [T, channels], out: q and k of length one, q also scaled.
        decay, strength: float32 [T, NV], out.
        layer: among the recurrent ones.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    channels: tl.constexpr = (2 * NK + NV) * D
    channel = head * D + tl.arange(0, D)
    conversation = tl.load(owner + row)
    slot = tl.load(slots + conversation).to(tl.int64)
    begin = tl.load(first + conversation)
    tail = tails + (slot * LAYERS + layer) * (TAPS - 1) * channels
    total = tl.zeros([D], tl.float32)
    for j in tl.static_range(TAPS):
        at = row + (j - (TAPS - 1))
        before = at < begin
        old = tl.load(tail + (at - begin + TAPS - 1) * channels + channel, mask=before & (channel >= 0), other=0.0)
        new = tl.load(u + at * channels + channel, mask=(channel >= 0) & (at >= begin), other=0.0)
        total += tl.load(taps + channel * TAPS + j) * tl.where(before, old, new)
    x = silu(total)
    if head < 2 * NK:
        x = x / tl.sqrt_rn(tl.sum(x * x, 0) + 1e-6)
        if head < NK:
            x = x * (D**-0.5)
    else:
        v = head - 2 * NK
        raw = gates + row * 2 * NV + v
        tl.store(decay + row * NV + v, tl.exp(tl.load(a + v) * softplus(tl.load(raw) + tl.load(dt + v))))
        tl.store(strength + row * NV + v, sigmoid(tl.load(raw + NV)))
    tl.store(mixed + row * channels + channel, x)


@triton.jit
def _step(state, mixed, decay, strength, row, head, value, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr):
    """The state ``[keys, some values]`` after a row."""
    channels: tl.constexpr = (2 * NK + NV) * D
    key = tl.load(mixed + row * channels + (NK + head % NK) * D + tl.arange(0, D))
    new = tl.load(mixed + row * channels + (2 * NK + head) * D + value)
    state = state * tl.load(decay + row * NV + head)
    delta = (new - tl.sum(state * key[:, None], 0)) * tl.load(strength + row * NV + head)
    return state + key[:, None] * delta[None, :]


@triton.jit
def window(
    mixed, decay, strength, states, places, spares, first, out,
    layer, LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Outputs of every row. Grid: (NV, conversations of the window, D / VALUES).

    Args:
        mixed, decay, strength: as `prepare` leaves them.
        states: float32 [all places, LAYERS, NV, D, D], indexed [.., key, value].
        places: int32 [conversations], where the committed states are.
        spares: int32 [conversations], where the states after the window go.
        first: as for `prepare`.
        out: float32 [T, NV*D], out.
        layer: among the recurrent ones.
    """
    head, conversation = tl.program_id(0), tl.program_id(1)
    channels: tl.constexpr = (2 * NK + NV) * D
    each: tl.constexpr = NV * D * D
    lane = tl.arange(0, D)
    value = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    cell = head * D * D + lane[:, None] * D + value[None, :]
    here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
    there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
    state = tl.load(here + cell)
    for row in range(tl.load(first + conversation), tl.load(first + conversation + 1)):
        state = _step(state, mixed, decay, strength, row, head, value, NK, NV, D)
        query = tl.load(mixed + row * channels + (head % NK) * D + lane)
        tl.store(out + row * NV * D + head * D + value, tl.sum(state * query[:, None], 0))
    tl.store(there + cell, state)


@triton.jit
def gate(out, z, norm, eps, gated, q, s, sums, NV: tl.constexpr, D: tl.constexpr):
    """Normalise each head's output, gate it, and quantise it for the output projection. Grid: (T, NV).

    Args:
        out: float32 [T, NV*D].
        z: float32 [T, NV*D], gate.
        norm: float32 [D].
        eps: of the norm.
        gated: float32 [T, NV*D], out.
        q, s, sums: the same quantised, out.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, D)
    at = row * NV * D + head * D + lane
    x = tl.load(out + at)
    x = x / tl.sqrt_rn(tl.sum(x * x, 0) / D + eps) * tl.load(norm + lane) * sigmoid(tl.load(z + at))
    tl.store(gated + at, x)
    store_quantised(q, s, sums, row, x, head * D // 32, (head + 1) * D // 32, NV * D // 32, D // 32)


@triton.jit
def replay(
    mixed, decay, strength, states, places, spares, first, accepted, total,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Leave the states after the accepted rows where the window left those after all of them.

    Grid: (NV * D / VALUES, conversations, LAYERS). Does nothing where all rows were accepted.

    Args:
        mixed: float32 [LAYERS, total, channels], as `prepare` leaves it; decay, strength: [LAYERS, total, NV].
        states, places, spares, first: as for `window`.
        accepted: int32 [conversations].
        total: rows of the window.
    """
    head, conversation, layer = tl.program_id(0) // (D // VALUES), tl.program_id(1), tl.program_id(2)
    begin = tl.load(first + conversation)
    rows = tl.load(accepted + conversation)
    if rows < tl.load(first + conversation + 1) - begin:
        each: tl.constexpr = NV * D * D
        mixed += layer * total * (2 * NK + NV) * D
        decay += layer * total * NV
        strength += layer * total * NV
        value = tl.program_id(0) % (D // VALUES) * VALUES + tl.arange(0, VALUES)
        cell = head * D * D + tl.arange(0, D)[:, None] * D + value[None, :]
        here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
        there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
        state = tl.load(here + cell)
        for row in range(begin, begin + rows):
            state = _step(state, mixed, decay, strength, row, head, value, NK, NV, D)
        tl.store(there + cell, state)


@triton.jit
def shift(
    u, tails, slots, first, accepted, total, LAYERS: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Move the convolutions' tails past the accepted rows. Grid: (channels / BLOCK, conversations, LAYERS).

    Args:
        u: float32 [LAYERS, total, channels].
        tails, slots, first: as for `prepare`.
        accepted, total: as for `replay`.
    """
    conversation, layer = tl.program_id(1), tl.program_id(2)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    slot = tl.load(slots + conversation).to(tl.int64)
    tail = tails + (slot * LAYERS + layer) * (TAPS - 1) * CHANNELS
    u += (layer * total + tl.load(first + conversation)) * CHANNELS
    rows = tl.load(accepted + conversation)
    for j in tl.static_range(TAPS - 1):  # rising, so that what is still needed is not yet overwritten
        row = rows + j - (TAPS - 1)
        old = tl.load(tail + (row + TAPS - 1) * CHANNELS + channel, mask=inside & (row < 0), other=0.0)
        new = tl.load(u + row * CHANNELS + channel, mask=inside & (row >= 0), other=0.0)
        tl.store(tail + j * CHANNELS + channel, tl.where(row < 0, old, new), mask=inside)
