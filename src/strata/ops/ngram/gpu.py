"""The n-gram embedding of a window on a GPU: hash, gate, smooth; and its commit.

It acts before one layer only, so nothing here is fused further. The table's rows are read by `strata.ops.rows.gpu`.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import sigmoid, silu


@triton.jit
def numbers(
    ids, history, slots, first, owner, multipliers, sizes, offsets, out,
    N: tl.constexpr, HEADS: tl.constexpr, EOS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Table rows of every token (model spec, section 10.2). Grid: (T,).

    Args:
        ids: int32 [T].
        history: int32 [all slots, N-1], ids before the window, oldest first.
        slots: int32 [conversations]; first: int32 [conversations + 1]; owner: int32 [T].
        multipliers: int64 [N]; sizes, offsets: int64 [(N-1) * HEADS].
        out: int64 [T, (N-1) * HEADS], out.
        HEADS: power of two.
    """
    release(PDL)
    wait(PDL)
    row = tl.program_id(0)
    conversation = tl.load(owner + row)
    begin = tl.load(first + conversation)
    before = history + tl.load(slots + conversation) * (N - 1)
    head = tl.arange(0, HEADS)
    mixed = tl.load(ids + row).to(tl.int64) * tl.load(multipliers)
    dead = tl.full([], 0, tl.int32)
    for lag in tl.static_range(1, N):
        at = row - lag
        new = tl.load(ids + at, mask=at >= begin, other=0)
        old = tl.load(before + N - 1 + at - begin, mask=at < begin, other=0)
        earlier = tl.where(at < begin, old, new)
        dead = dead | (earlier == EOS).to(tl.int32)
        mixed = mixed ^ (tl.where(dead != 0, EOS, earlier).to(tl.int64) * tl.load(multipliers + lag))
        which = (lag - 1) * HEADS + head
        tl.store(out + row * (N - 1) * HEADS + which, mixed % tl.load(sizes + which) + tl.load(offsets + which))


@triton.jit
def gate(
    key, value, residual, norm_key, norm_query, norm_conv, eps, gated, normed,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Weigh the embedding by its likeness to each stream (section 10.3). Grid: (T, S).

    Args:
        key: float32 [T, S*H], projected.
        value: float32 [T, H], projected.
        residual: float32 [T, S*H].
        norm_key, norm_query, norm_conv: float32 [S*H].
        eps: of the norms.
        gated, normed: float32 [T, S*H], out; `normed` is what the convolution runs over.
        BLOCK: power of two, at least H.
    """
    release(PDL)
    wait(PDL)
    row, stream = tl.program_id(0), tl.program_id(1)
    h = tl.arange(0, BLOCK)
    inside = h < H
    at, here = row * S * H + stream * H + h, stream * H + h
    k = tl.load(key + at, mask=inside, other=0.0)
    q = tl.load(residual + at, mask=inside, other=0.0)
    k = k * (1.0 / tl.sqrt_rn(tl.sum(k * k, 0) / H + eps)) * tl.load(norm_key + here, mask=inside, other=0.0)
    q = q * (1.0 / tl.sqrt_rn(tl.sum(q * q, 0) / H + eps)) * tl.load(norm_query + here, mask=inside, other=0.0)
    a = tl.sum(k * q, 0) / (H**0.5)
    root = tl.sqrt_rn(tl.maximum(tl.abs(a), 1e-6))
    strength = sigmoid(tl.where(a > 0, root, tl.where(a < 0, -root, 0.0)))
    x = strength * tl.load(value + row * H + h, mask=inside, other=0.0)
    tl.store(gated + at, x, mask=inside)
    x = x * (1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / H + eps)) * tl.load(norm_conv + here, mask=inside, other=0.0)
    tl.store(normed + at, x, mask=inside)


@triton.jit
def smooth(
    residual, gated, normed, tails, slots, first, owner, taps,
    WIDTH: tl.constexpr, TAPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add the embedding and its convolution along the sequence to the streams. Grid: (T, WIDTH / BLOCK).

    Args:
        residual: float32 [T, WIDTH], changed in place.
        gated, normed: float32 [T, WIDTH].
        tails: float32 [all slots, (TAPS-1) * N, WIDTH], rows before the window.
        slots, first, owner: as for `numbers`.
        taps: float32 [WIDTH, TAPS], N tokens apart.
    """
    release(PDL)
    wait(PDL)
    row = tl.program_id(0)
    conversation = tl.load(owner + row)
    begin = tl.load(first + conversation)
    tail = tails + tl.load(slots + conversation).to(tl.int64) * (TAPS - 1) * N * WIDTH
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < WIDTH
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(TAPS):
        at = row + (j - (TAPS - 1)) * N
        old = tl.load(tail + (at - begin + (TAPS - 1) * N) * WIDTH + channel, mask=inside & (at < begin), other=0.0)
        new = tl.load(normed + at * WIDTH + channel, mask=inside & (at >= begin), other=0.0)
        total += tl.load(taps + channel * TAPS + j, mask=inside, other=0.0) * tl.where(at < begin, old, new)
    here = row * WIDTH + channel
    x = tl.load(gated + here, mask=inside, other=0.0) + silu(total)
    tl.store(residual + here, tl.load(residual + here, mask=inside, other=0.0) + x, mask=inside)


@triton.jit
def shift(
    normed, ids, tails, history, slots, first, accepted,
    WIDTH: tl.constexpr, TAPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Move tail and history past the accepted rows. Grid: (WIDTH / BLOCK, conversations)."""
    conversation = tl.program_id(1)
    slot = tl.load(slots + conversation).to(tl.int64)
    begin = tl.load(first + conversation)
    rows = tl.load(accepted + conversation)
    long: tl.constexpr = (TAPS - 1) * N
    tail = tails + slot * long * WIDTH
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < WIDTH
    for j in tl.static_range(long):  # rising, so that what is still needed is not yet overwritten
        at = rows + j - long
        old = tl.load(tail + (at + long) * WIDTH + channel, mask=inside & (at < 0), other=0.0)
        new = tl.load(normed + (begin + at) * WIDTH + channel, mask=inside & (at >= 0), other=0.0)
        tl.store(tail + j * WIDTH + channel, tl.where(at < 0, old, new), mask=inside)
    if tl.program_id(0) == 0:
        before = history + slot * (N - 1)
        for j in tl.static_range(N - 1):
            from_row = rows + j - (N - 1)
            old_id = tl.load(before + from_row + N - 1, mask=from_row < 0, other=0)
            new_id = tl.load(ids + begin + from_row, mask=from_row >= 0, other=0)
            tl.store(before + j, tl.where(from_row < 0, old_id, new_id))
