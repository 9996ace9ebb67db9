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
def quantise(x):
    """Activations ``[blocks, 32]`` to int8, their scale, and scale times sum (docs/numerics.md, "Activations")."""
    peak = tl.max(tl.abs(x), 1)
    tiny = peak < 7.888609052210118e-31  # 2^-100
    safe = tl.where(tiny, 1.0, peak)
    scale = tl.where(tiny, 0.0, tl.math.div_rn(safe, 127.0))
    inverse = tl.where(tiny, 0.0, tl.math.div_rn(127.0, safe))
    whole = (x * inverse[:, None] + 12582912.0) - 12582912.0
    codes = whole.to(tl.int32)
    return codes.to(tl.int8), scale, scale * tl.sum(codes, 1).to(tl.float32)
