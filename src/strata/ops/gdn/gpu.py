"""A recurrent layer's window on a GPU: convolution, norms and delta rule; norm and gate of the output. And its commit.

A program holds a share of one value head's state in registers, all keys of some values, reads it once, runs the
window's rows through it one after another, and writes it once. Of a token's 4.8 GB the states are 226 MB (36 layers,
read and written once): 54 us at the 4.2 TB/s of an H200, so 1.5 us a layer. The state was left by earlier windows, so
where a launch may begin early it is read while the projections are still computed. What comes before the rule is a few
hundred numbers a row, so that every program convolves and normalises the rows of its key head for itself. They go
through memory: the state's sums want a key once in each thread of a row of threads, and would have everything before it
computed so, too.

A window does not touch the committed state: it leaves the state after its last row in a spare place. Committing all
rows then only exchanges the two places; committing fewer replays them into the spare place first (`replay`).
A row's arithmetic does not depend on how many rows follow it, so any n rows leave what n single windows leave.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import sigmoid, silu, softplus, store_quantised

WARPS = 4

VALUES = 32
"""Values of a head a program takes: more programs, each with fewer rows of registers to fill."""

PART = 512
"""Numbers of a row of the gates multiplied at a time."""


@triton.jit
def _taps(taps, channel, TAPS: tl.constexpr):
    """The weights of some channels, oldest row first."""
    weights = ()
    for j in tl.static_range(TAPS):
        weights = weights + (tl.load(taps + channel * TAPS + j),)
    return weights


@triton.jit
def _convolved(u, tail, weights, row, begin, channel, channels: tl.constexpr, TAPS: tl.constexpr):
    """A row's channels after convolution and silu over the TAPS rows up to it, of the tail where before `begin`."""
    total = tl.zeros(channel.shape, tl.float32)
    for j in tl.static_range(TAPS):
        at = row + (j - (TAPS - 1))
        source = tail + (at - begin + TAPS - 1) * channels if at < begin else u + at * channels
        total += weights[j] * tl.load(source + channel)
    return silu(total)


@triton.jit
def _line(w, row, WIDTH: tl.constexpr, PART: tl.constexpr):
    """A row of a matrix, in parts."""
    parts = ()
    for j in tl.static_range((WIDTH + PART - 1) // PART):
        at = j * PART + tl.arange(0, PART)
        parts = parts + (tl.load(w + row * WIDTH + at, mask=at < WIDTH, other=0.0),)
    return parts


@triton.jit
def _times(parts, x, WIDTH: tl.constexpr, PART: tl.constexpr):
    """The product of such a row with a vector."""
    total = tl.zeros([PART], tl.float32)
    for j in tl.static_range((WIDTH + PART - 1) // PART):
        at = j * PART + tl.arange(0, PART)
        total += parts[j] * tl.load(x + at, mask=at < WIDTH, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def _unit(x):
    """Of length one."""
    return x / tl.sqrt_rn(tl.sum(x * x, 0) + 1e-6)


@triton.jit(do_not_specialize=["layer"])
def window(  # all of it in one launch
    u, x, gates, tails, slots, first, taps, a, dt, states, places, spares,
    kept, mixed, steps, decay, strength, out, layer,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, TAPS: tl.constexpr,
    WIDTH: tl.constexpr, PART: tl.constexpr, VALUES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """From the projection to what the rule gives. Grid: (NV, conversations of the window, D / VALUES).

    Args:
        u: float32 [T, channels], the projection before the convolution: heads of q, of k, of v.
        x: float32 [T, WIDTH], what was projected.
        gates: float32 [2 NV, WIDTH], the projections alpha, then beta: two numbers a head, not worth a launch.
        tails: float32 [slots, LAYERS, TAPS-1, channels], the rows before the window.
        slots: int32 [conversations].
        first: int32 [conversations + 1], each conversation's first row, and the number of rows.
        taps: float32 [channels, TAPS].
        a, dt: float32 [NV].
        states: float32 [all places, LAYERS, NV, D, D], indexed [.., key, value].
        places: int32 [conversations], where the committed states are.
        spares: int32 [conversations], where the states after the window go.
        kept: float32 [T, channels], out: u, for `shift`.
        mixed: float32 [T, channels], out: q and k of length one, q also scaled, and v, after the convolution.
        steps: float32 [T, NV*D], out, for `replay`: what a row adds to the state for a key of one.
        decay, strength: float32 [T, NV], out, likewise.
        PART: of WIDTH, multiplied at a time; power of two.
        out: float32 [T, NV*D], out.
        layer: among the recurrent ones.
    """
    release(PDL)
    head, conversation = tl.program_id(0), tl.program_id(1)
    channels: tl.constexpr = (2 * NK + NV) * D
    each: tl.constexpr = NV * D * D
    lane = tl.arange(0, D)
    values = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    source = head % NK
    of_q, of_k, of_v = source * D + lane, (NK + source) * D + lane, (2 * NK + head) * D + values
    taps_q, taps_k, taps_v = _taps(taps, of_q, TAPS), _taps(taps, of_k, TAPS), _taps(taps, of_v, TAPS)
    rate, shift_ = tl.load(a + head), tl.load(dt + head)
    alpha, beta = _line(gates, head, WIDTH, PART), _line(gates, NV + head, WIDTH, PART)
    begin, end = tl.load(first + conversation), tl.load(first + conversation + 1)
    tail = tails + (tl.load(slots + conversation).to(tl.int64) * LAYERS + layer) * (TAPS - 1) * channels
    cell = head * D * D + lane[:, None] * D + values[None, :]
    here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
    there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
    state = tl.load(here + cell)
    wait(PDL)
    first_of_head = (lane >= 0) & (tl.program_id(2) == 0) & (head < NK)
    for row in range(begin, end):
        fades = tl.exp(rate * softplus(_times(alpha, x + row * WIDTH, WIDTH, PART) + shift_))
        learns = sigmoid(_times(beta, x + row * WIDTH, WIDTH, PART))
        # What several programs need they all store, with the same bytes.
        tl.store(decay + row * NV + head, fades)
        tl.store(strength + row * NV + head, learns)
        line = row * channels
        query = _unit(_convolved(u, tail, taps_q, row, begin, of_q, channels, TAPS)) * (D**-0.5)
        key = _unit(_convolved(u, tail, taps_k, row, begin, of_k, channels, TAPS))
        tl.store(mixed + line + of_q, query)
        tl.store(mixed + line + of_k, key)
        value = _convolved(u, tail, taps_v, row, begin, of_v, channels, TAPS)
        tl.store(mixed + line + of_v, value)
        tl.store(kept + line + of_v, tl.load(u + line + of_v))
        for_q = tl.load(u + line + of_q, mask=first_of_head, other=0.0)
        tl.store(kept + line + of_q, for_q, mask=first_of_head)
        for_k = tl.load(u + line + of_k, mask=first_of_head, other=0.0)
        tl.store(kept + line + of_k, for_k, mask=first_of_head)
    tl.debug_barrier()
    for row in range(begin, end):
        line = row * channels
        query = tl.load(mixed + line + of_q)
        key = tl.load(mixed + line + of_k)
        value = tl.load(mixed + line + of_v)
        faded = state * tl.load(decay + row * NV + head)
        share = tl.load(strength + row * NV + head)
        step = (value - tl.sum(faded * key[:, None], 0)) * share
        state = faded + key[:, None] * step[None, :]
        at = row * NV * D + head * D + values
        tl.store(out + at, tl.sum(state * query[:, None], 0))
        tl.store(steps + at, step)
    tl.store(there + cell, state)


@triton.jit
def gate(out, z, norm, eps, gated, q, s, sums, NV: tl.constexpr, D: tl.constexpr, PDL: tl.constexpr):
    """Normalise each head's output, gate it, and quantise it for the output projection. Grid: (T, NV).

    Args:
        out: float32 [T, NV*D].
        z: float32 [T, NV*D], gate.
        norm: float32 [D].
        eps: of the norm.
        gated: float32 [T, NV*D], out.
        q, s, sums: the same quantised, out.
    """
    release(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, D)
    at = row * NV * D + head * D + lane
    weight = tl.load(norm + lane)
    wait(PDL)
    x, strength = tl.load(out + at), tl.load(z + at)
    x = x / tl.sqrt_rn(tl.sum(x * x, 0) / D + eps) * weight * sigmoid(strength)
    tl.store(gated + at, x)
    store_quantised(q, s, sums, row, x, head * D // 32, (head + 1) * D // 32, NV * D // 32, D // 32)


@triton.jit(do_not_specialize=["total"])
def replay(
    mixed, steps, decay, states, places, spares, first, accepted, total,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, VALUES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Leave the states after the accepted rows where the window left those after all of them.

    Nothing is summed, so the bytes are the window's whatever the tile.

    Grid: (NV * D / VALUES, conversations, LAYERS). Does nothing where all rows were accepted, or none.

    Args:
        mixed: float32 [LAYERS, total, channels], as `window` leaves it; steps: [LAYERS, total, NV*D]; decay: [LAYERS,
            total, NV].
        states, places, spares, first: as for `window`.
        accepted: int32 [conversations].
        total: rows of the window.
    """
    release(PDL)
    head, conversation, layer = tl.program_id(0) // (D // VALUES), tl.program_id(1), tl.program_id(2)
    begin = tl.load(first + conversation)
    wait(PDL)
    rows = tl.load(accepted + conversation)
    if (rows > 0) & (rows < tl.load(first + conversation + 1) - begin):
        channels: tl.constexpr = (2 * NK + NV) * D
        each: tl.constexpr = NV * D * D
        lane = tl.arange(0, D)
        values = tl.program_id(0) % (D // VALUES) * VALUES + tl.arange(0, VALUES)
        mixed += layer * total * channels
        steps += layer * total * NV * D
        decay += layer * total * NV
        cell = head * D * D + lane[:, None] * D + values[None, :]
        here = states + (tl.load(places + conversation).to(tl.int64) * LAYERS + layer) * each
        there = states + (tl.load(spares + conversation).to(tl.int64) * LAYERS + layer) * each
        state = tl.load(here + cell)
        for row in range(begin, begin + rows):
            key = tl.load(mixed + row * channels + (NK + head % NK) * D + lane)
            step = tl.load(steps + row * NV * D + head * D + values)
            state = state * tl.load(decay + row * NV + head)
            state = state + key[:, None] * step[None, :]
        tl.store(there + cell, state)


@triton.jit(do_not_specialize=["total"])
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
