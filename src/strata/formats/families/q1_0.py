"""Q1_0: 128 weights, one float16 scale and one bit each."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import half, half_bytes, lanes, pack_lanes


def dequantise_q1_0(blocks: U8) -> F32:
    """d, 16 bytes of bits; d where bit ``j % 8`` of byte ``j // 8`` is set, else -d."""
    d = half(blocks, 0)
    return np.where(lanes(blocks[:, 2:], 1).reshape(len(blocks), -1) == 1, d, -d)


def quantise_q1_0(x: F32) -> U8:
    """Signs, and the mean magnitude, which is the least-squares scale for them."""
    d = np.abs(x).mean(axis=1, keepdims=True, dtype=np.float32)
    bits = (x >= 0).astype(np.uint8).reshape(len(x), -1, 8)
    return np.concatenate([half_bytes(d), pack_lanes(bits, 1)], axis=1)
