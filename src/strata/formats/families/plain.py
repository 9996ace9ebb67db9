"""F32, F16 and BF16: one weight per block, no scale."""

import numpy as np

from strata.formats.block import F32, U8


def dequantise_f32(blocks: U8) -> F32:
    """The bits themselves, NaN payloads included."""
    return blocks.view("<f4")


def quantise_f32(x: F32) -> U8:
    """Exact."""
    return x.astype("<f4", copy=False).view(np.uint8)


def dequantise_f16(blocks: U8) -> F32:
    """IEEE half precision, exact."""
    return blocks.view("<f2").astype(np.float32)


def quantise_f16(x: F32) -> U8:
    """Rounded to nearest even."""
    return x.astype("<f2").view(np.uint8)


def dequantise_bf16(blocks: U8) -> F32:
    """The upper half of a float32, exact."""
    return (blocks.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def quantise_bf16(x: F32) -> U8:
    """Rounded to nearest even on the dropped 16 bits."""
    bits = x.view(np.uint32)
    half_up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half_up) >> np.uint32(16)).astype("<u2").view(np.uint8)
