"""The residual streams on a GPU: write-back, norm and quantisation in one pass, then the gated mean.

Around two matrix products (`down` and `up`) a read needs three launches of these; the four rows of `inject` are
multiplied where the normalised streams are at hand. All are bound by
latency, not by bytes: a row's four streams are 40 KB.
"""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, silu, store_quantised

WARPS = 4


@triton.jit
def _strength(due, row, stream, S: tl.constexpr):
    """2 sigmoid(inject / S) from the shares of the streams, added in order."""
    total = tl.load(due + (row * S + stream) * S)
    for other in tl.static_range(1, S):
        total += tl.load(due + (row * S + stream) * S + other)
    return 2.0 * sigmoid(total / S)


@triton.jit
def write_norm(
    residual, out, due, norm, eps, inject, shares, xn, q, s, sums,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, WRITE: tl.constexpr, INJECT: tl.constexpr,
):  # fmt: skip
    """Add a block's output to a stream, and normalise the stream for the next read. Grid: (T, S).

    Args:
        residual: float32 [T, S*H], changed in place.
        out: float32 [T, H], the block's output; unused unless WRITE.
        due: float32 [T, S, S], the shares that the read before the block left; unused unless WRITE.
        norm: float32 [S*H].
        eps: of the norm.
        inject: float32 [S, S*H]; unused unless INJECT.
        shares: float32 [T, S, S], out: what each stream (last) adds to the raw write-back strength of each.
        xn: float32 [T, S*H], out.
        q: int8 [T, 2, S*H/32, 16], out.
        s, sums: float32 [T, S*H/32], out.
        BLOCK: power of two, at least H; a multiple of 32.
    """
    row, stream = tl.program_id(0), tl.program_id(1)
    h = tl.arange(0, BLOCK)
    inside = h < H
    at = row * S * H + stream * H
    x = tl.load(residual + at + h, mask=inside, other=0.0)
    if WRITE:
        x += _strength(due, row, stream, S) * tl.load(out + row * H + h, mask=inside, other=0.0)
        tl.store(residual + at + h, x, mask=inside)
    y = x * (1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / H + eps))
    y = y * tl.load(norm + stream * H + h, mask=inside, other=0.0)
    if INJECT:
        for target in tl.static_range(S):
            weights = tl.load(inject + target * S * H + stream * H + h, mask=inside, other=0.0)
            tl.store(shares + (row * S + target) * S + stream, tl.sum(y * weights, 0))
    tl.store(xn + at + h, y, mask=inside)
    store_quantised(q, s, sums, row, y, stream * H // 32, (stream + 1) * H // 32, S * H // 32, BLOCK // 32)


@triton.jit
def low(y, x, q, s, sums, R: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """silu(y / S) of the low-rank rows ``y`` float32 [T, R], and the same quantised. Grid: (T,)."""
    row = tl.program_id(0)
    r = tl.arange(0, BLOCK)
    inside = r < R
    value = silu(tl.load(y + row * R + r, mask=inside, other=0.0) / S)
    tl.store(x + row * R + r, value, mask=inside)
    store_quantised(q, s, sums, row, value, 0, R // 32, R // 32, BLOCK // 32)


@triton.jit
def mix(gates, xn, m, q, s, sums, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of the gated streams, and its quantised form. Grid: (T, H / BLOCK).

    Args:
        gates: float32 [T, S*H], raw.
        xn: float32 [T, S*H].
        m: float32 [T, H], out.
        q: int8 [T, H], out.
        s, sums: float32 [T, H/32], out.
        BLOCK: power of two and multiple of 32.
    """
    row = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    total = tl.zeros([BLOCK], tl.float32)
    for stream in tl.static_range(S):
        at = row * S * H + stream * H + h
        gate = sigmoid(tl.load(gates + at, mask=inside, other=0.0))
        total += gate * tl.load(xn + at, mask=inside, other=0.0)
    mean = total / S
    tl.store(m + row * H + h, mean, mask=inside)
    store_quantised(q, s, sums, row, mean, tl.program_id(1) * (BLOCK // 32), H // 32, H // 32, BLOCK // 32)


@triton.jit
def write(residual, out, due, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """Add a block's output to a stream, as `write_norm` does, and nothing else. Grid: (T, S)."""
    row, stream = tl.program_id(0), tl.program_id(1)
    h = tl.arange(0, BLOCK)
    inside = h < H
    at = residual + row * S * H + stream * H + h
    new = tl.load(out + row * H + h, mask=inside, other=0.0)
    x = tl.load(at, mask=inside, other=0.0) + _strength(due, row, stream, S) * new
    tl.store(at, x, mask=inside)
