"""The one exponential and SwiGLU of docs/numerics.md, in Triton."""

import triton
import triton.language as tl


@triton.jit
def rint(v):
    """Nearest whole number, ties to even, for ``|v| < 2^22``."""
    return (v + 12582912.0) - 12582912.0


@triton.jit
def exp(x):
    """`strata.experts.judge.exp`: saturating below -87 and above 88."""
    x = tl.minimum(tl.maximum(x, -87.0), 88.0)
    n = rint(x * 1.44269504088896341)
    r = (x - n * 0.693359375) - n * -2.12194440e-4
    p = r * 1.9875691500e-4 + 1.3981999507e-3
    p = p * r + 8.3334519073e-3
    p = p * r + 4.1665795894e-2
    p = p * r + 1.6666665459e-1
    p = p * r + 5.0000001201e-1
    y = (p * (r * r) + r) + 1.0
    return y * ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def swiglu(gate, up):
    """``silu(gate) * up``."""
    return tl.math.div_rn(gate, 1.0 + exp(-gate)) * up
