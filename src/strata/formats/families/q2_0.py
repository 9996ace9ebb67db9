"""Q2_0: a float16 scale and 2-bit codes for -d, 0, d, 2d. One code for both layouts that share type id 42.

llama.cpp's layout has 64 weights in 18 bytes, a fork's has 128 in 34; only the length differs.
"""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import as_half, half, half_bytes, lanes, pack_lanes
from strata.formats.scales import fit_scale, inverse

# Steps per largest magnitude, both signs of d. 1 is the reference quantiser (d = max|x|, code 3 never used). A finer or
# longer list lowers the error on Gaussian, Laplacian and uniform weights by less than 0.1%.
_FACTORS = [sign * (1 + 0.125 * step) for step in range(25) for sign in (1, -1)]


def dequantise_q2_0(blocks: U8) -> F32:
    """d, 2-bit codes, four neighbours to a byte, lowest bits first; ``d * (code - 1)``."""
    codes = lanes(blocks[:, 2:], 2).reshape(len(blocks), -1)
    return half(blocks, 0) * (codes.astype(np.float32) - 1)


def _nearest(x: F32) -> F32:
    return np.clip(np.rint(x), -1, 2)


def quantise_q2_0(x: F32) -> U8:
    """A search over the scale, with both signs of d, refitted by least squares.

    The reference quantiser takes d = max|x| and so spends one of four codes on nothing; that choice is among the
    candidates here, so the error is never larger. A negative d is as valid to any reader as a positive one; it puts
    the long side (2d) at negative weights.
    """
    d = as_half(fit_scale(x, _FACTORS, _nearest))
    codes = (_nearest(x * inverse(d)) + 1).astype(np.uint8)
    return np.concatenate([half_bytes(d), pack_lanes(codes.reshape(len(x), -1, 4), 2)], axis=1)
