"""Small pieces that GPU kernels share. Importing this needs Triton; nothing outside kernels' files imports it."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    """x / (1 + exp(-x))."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), and x itself above 20, where float32 sees no difference."""
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def store_quantised(q, s, z, row, x, first, last, B, BLOCKS: tl.constexpr):
    """Quantise part of a row and store it as `strata.ops.matvec.triton.Activations` holds it.

    Args:
        q: int8 [T, 2, B, 16]; s, z: float32 [T, B].
        row: of the T.
        x: float32 [32 BLOCKS], of blocks ``first`` to ``last`` - 1; what is behind them is not stored.
        first, last: blocks of the row.
        B: blocks of a row.
    """
    x = tl.reshape(x, (BLOCKS, 32))
    peak = tl.max(tl.abs(x), 1)
    tiny = peak < 7.888609052210118e-31  # 2^-100
    safe = tl.where(tiny, 1.0, peak)
    limit = tl.full((BLOCKS,), 127.0, tl.float32)
    scale = tl.where(tiny, 0.0, tl.math.div_rn(safe, limit))
    inverse = tl.where(tiny, 0.0, tl.math.div_rn(limit, safe))
    codes = ((x * inverse[:, None] + 12582912.0) - 12582912.0).to(tl.int32)
    block = first + tl.arange(0, BLOCKS)
    inside = block < last
    place = tl.arange(0, 32)[None, :]
    at = ((row * 2 + place // 16) * B + block[:, None]) * 16 + place % 16
    tl.store(q + at, codes.to(tl.int8), mask=inside[:, None])
    tl.store(s + row * B + block, scale, mask=inside)
    tl.store(z + row * B + block, scale * tl.sum(codes, 1).to(tl.float32), mask=inside)
