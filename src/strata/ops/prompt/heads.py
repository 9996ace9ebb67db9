"""A recurrent layer's rows before and after the delta rule: convolution and norms, the gate, the convolution's tail."""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, silu, softplus
from strata.ops.prompt.halves import to_half


@triton.jit
def convolve(
    u, width, gates, tails, slots, counts, taps, a, dt, mixed, decay, strength, layer,
    LAYERS: tl.constexpr, NK: tl.constexpr, NV: tl.constexpr, D: tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Convolve, normalise, and form the gates. Grid: (most rows / ROWS, 2 NK + NV), a head each.

    Args:
        u: float32 [T, width], the projection before the convolution in its first columns: heads of q, of k, of v.
        gates: float32, rows of ``width`` numbers that start with 2 NV projections: alpha, then beta.
        tails: float32 [slots, LAYERS, TAPS-1, channels], the rows before.
        slots: int32, its first is the conversation's.
        counts: int32, its first is T.
        taps: float32 [channels, TAPS].
        a, dt: float32 [NV].
        mixed: float16 [T, channels], out: q and k of length one, q also scaled.
        decay: float32 [T, NV], out, its logarithm; strength: float32 [T, NV], out.
        layer: among the recurrent ones.
    """
    count = tl.load(counts)
    head = tl.program_id(1)
    channels: tl.constexpr = (2 * NK + NV) * D
    channel = head * D + tl.arange(0, D)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tail = tails + (tl.load(slots) * LAYERS + layer) * (TAPS - 1) * channels
    total = tl.zeros([ROWS, D], tl.float32)
    for j in tl.static_range(TAPS):
        at = (row + (j - (TAPS - 1)))[:, None]
        old = tl.load(tail + (at + TAPS - 1) * channels + channel[None, :], mask=at < 0, other=0.0)
        new = tl.load(u + at * width + channel[None, :], mask=(at >= 0) & (at < count), other=0.0)
        total += tl.load(taps + channel * TAPS + j)[None, :] * tl.where(at < 0, old, new)
    x = silu(total)
    there = row < count
    if head < 2 * NK:
        x = x / tl.sqrt_rn(tl.sum(x * x, 1) + 1e-6)[:, None]
        if head < NK:
            x = x * (D**-0.5)
    else:
        v = head - 2 * NK
        raw = gates + row * width + v
        alpha, beta = tl.load(raw, mask=there, other=0.0), tl.load(raw + NV, mask=there, other=0.0)
        tl.store(decay + row * NV + v, tl.load(a + v) * softplus(alpha + tl.load(dt + v)), mask=there)
        tl.store(strength + row * NV + v, sigmoid(beta), mask=there)
    tl.store(mixed + row[:, None] * channels + channel[None, :], to_half(x), mask=there[:, None])


@triton.jit
def gate(out, z, width, norm, eps, counts, gated, NV: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr):
    """Normalise each head's output and gate it. Grid: (most rows / ROWS, NV).

    Args:
        out: float32 [T, NV*D].
        z: float32, rows of ``width`` numbers that start with NV*D gates.
        norm: float32 [D].
        counts: int32, its first is T.
        gated: float16 [T, NV*D], out.
    """
    row, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    there = (row < tl.load(counts))[:, None] & (lane >= 0)[None, :]
    wide = row[:, None]
    part = tl.program_id(1) * D + lane[None, :]
    x = tl.load(out + wide * (NV * D) + part, mask=there, other=0.0)
    x = x / tl.sqrt_rn(tl.sum(x * x, 1) / D + eps)[:, None] * tl.load(norm + lane)[None, :]
    x = x * sigmoid(tl.load(z + wide * width + part, mask=there, other=0.0))
    tl.store(gated + wide * (NV * D) + part, to_half(x), mask=there)


@triton.jit
def tail(
    u, width, tails, slots, counts, out, layer, LAYERS: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The convolution's tail behind the pass, for the commit. Grid: (channels / BLOCK,).

    Args:
        u, width, tails, slots, counts, layer: as for `convolve`.
        out: float32 [LAYERS, TAPS-1, channels], out.
    """
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    old = tails + (tl.load(slots) * LAYERS + layer) * (TAPS - 1) * CHANNELS
    count = tl.load(counts)
    for j in tl.static_range(TAPS - 1):
        row = count + j - (TAPS - 1)
        before = tl.load(old + (row + TAPS - 1) * CHANNELS + channel, mask=inside & (row < 0), other=0.0)
        new = tl.load(u + row * width + channel, mask=inside & (row >= 0), other=0.0)
        tl.store(out + (layer * (TAPS - 1) + j) * CHANNELS + channel, tl.where(row < 0, before, new), mask=inside)
