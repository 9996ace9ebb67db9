"""The residual streams on a GPU: write-back, norm and quantisation in one pass, then the gated mean.

Around two matrix products (`down` with `inject`, and `up`) a read needs three launches of these. All are bound by
latency, not by bytes: a row's four streams are 40 KB.
"""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, silu, store_quantised

WARPS = 4


@triton.jit
def write_norm(
    residual, out, inject, norm, eps, xn, q, s, sums,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """Add a block's output to a stream, and normalise the stream for the next read. Grid: (T, S).

    Args:
        residual: float32 [T, S*H], changed in place.
        out: float32 [T, H], the block's output; unused unless WRITE.
        inject: float32 [T, S], raw: strengths are 2 sigmoid(inject / S).
        norm: float32 [S*H].
        eps: of the norm.
        xn: float32 [T, S*H], out.
        q: int8 [T, S*H], out.
        s, sums: float32 [T, S*H/32], out.
        BLOCK: power of two, at least H; a multiple of 32.
    """
    row, stream = tl.program_id(0), tl.program_id(1)
    h = tl.arange(0, BLOCK)
    inside = h < H
    at = row * S * H + stream * H
    x = tl.load(residual + at + h, mask=inside, other=0.0)
    if WRITE:
        strength = 2.0 * sigmoid(tl.load(inject + row * S + stream) / S)
        x += strength * tl.load(out + row * H + h, mask=inside, other=0.0)
        tl.store(residual + at + h, x, mask=inside)
    y = x * (1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / H + eps))
    y = y * tl.load(norm + stream * H + h, mask=inside, other=0.0)
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
def write(residual, out, inject, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """Add a block's output to a stream, as `write_norm` does, and nothing else. Grid: (T, S)."""
    row, stream = tl.program_id(0), tl.program_id(1)
    h = tl.arange(0, BLOCK)
    inside = h < H
    at = residual + row * S * H + stream * H + h
    strength = 2.0 * sigmoid(tl.load(inject + row * S + stream) / S)
    x = tl.load(at, mask=inside, other=0.0) + strength * tl.load(out + row * H + h, mask=inside, other=0.0)
    tl.store(at, x, mask=inside)
