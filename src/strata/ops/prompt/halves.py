"""Float16 as prompts use it: activations and weights of matrix products, sums in float32.

Tensor cores multiply float16 and bfloat16 at one speed. Float16 keeps three bits more, which is worth more here than
range: activations are normalised or gated, weights are scaled by `SCALE`, so that float16's smallest normal number
stands for a weight of 9.5e-7 and its largest for 1023. What is larger than float16's largest number becomes that.
"""

import triton
import triton.language as tl

SCALE = tl.constexpr(64.0)
"""Weights are held times this; a power of two, taken out of the finished sums."""

LARGEST = tl.constexpr(65504.0)


@triton.jit
def to_half(x):
    """Float32 to float16, to nearest even; what is too large to the largest number, NaN to NaN."""
    x = tl.where(x > LARGEST, LARGEST, x)
    return tl.where(x < -LARGEST, -LARGEST, x).to(tl.float16)


FINE = tl.constexpr(2048.0)
"""The rest of a number is held times this: it is then as large as the number, and what it lacks is 2^-22 of it."""


@triton.jit
def split(x):
    """Float32 as two float16: the number, and what it lacks, times `FINE`."""
    high = to_half(x)
    return high, to_half((x - high.to(tl.float32)) * FINE)
