"""Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: 32 weights with one float16 scale, and in the _1 types a minimum.

The writers follow the reference quantisers of llama.cpp step by step in float32, so their bytes can be compared.
They round with the scale *before* it becomes a float16, as the reference does.
"""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import half, half_bytes, lanes, pack_lanes, pack_planes, planes
from strata.formats.scales import inverse, peak, round_half_away


def _low(blocks: U8, at: int) -> U8:
    """Codes of 4 bits: byte j holds weight j and, in its high nibble, weight j + 16. ``[n, 32]``."""
    return planes(blocks[:, at : at + 16], 4).reshape(-1, 32)


def _low_and_high(blocks: U8, at: int) -> U8:
    """Codes of 5 bits: 32 high bits, then the nibbles of the low four. ``[n, 32]``."""
    high = lanes(blocks[:, at : at + 4], 1).reshape(-1, 32)
    return _low(blocks, at + 4) | (high << np.uint8(4))


def _pack_low(codes: U8) -> U8:
    return pack_planes((codes & np.uint8(15)).reshape(-1, 2, 16), 4)


def _pack_high(codes: U8) -> U8:
    return pack_lanes((codes >> np.uint8(4)).reshape(-1, 4, 8), 1)


def dequantise_q4_0(blocks: U8) -> F32:
    """d, 16 nibble bytes; ``d * (code - 8)``."""
    return half(blocks, 0) * (_low(blocks, 2).astype(np.float32) - 8)


def dequantise_q4_1(blocks: U8) -> F32:
    """d, m, 16 nibble bytes; ``d * code + m``."""
    return half(blocks, 0) * _low(blocks, 4).astype(np.float32) + half(blocks, 2)


def dequantise_q5_0(blocks: U8) -> F32:
    """d, fifth bits 4, nibbles 16; ``d * (code - 16)``."""
    return half(blocks, 0) * (_low_and_high(blocks, 2).astype(np.float32) - 16)


def dequantise_q5_1(blocks: U8) -> F32:
    """d, m, fifth bits 4, nibbles 16; ``d * code + m``."""
    return half(blocks, 0) * _low_and_high(blocks, 4).astype(np.float32) + half(blocks, 2)


def dequantise_q8_0(blocks: U8) -> F32:
    """d, 32 signed bytes; ``d * code``."""
    return half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _from_peak(x: F32, lowest: int) -> tuple[F32, U8]:
    """Scale that puts the largest magnitude on code 0, that is on ``-lowest``; and the codes."""
    d = peak(x) / np.float32(-lowest)
    codes = np.trunc(x * inverse(d) + np.float32(lowest + 0.5)).astype(np.uint8)
    return d, np.minimum(codes, np.uint8(2 * lowest - 1))


def _from_range(x: F32, top: int) -> tuple[F32, F32, U8]:
    """Scale and minimum that spread codes 0..top over the block's range; and the codes."""
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(top)
    codes = np.trunc((x - low) * inverse(d) + np.float32(0.5)).astype(np.uint8)
    return d, low, np.minimum(codes, np.uint8(top))


def quantise_q4_0(x: F32) -> U8:
    """Bytes equal to the reference quantiser's."""
    d, codes = _from_peak(x, 8)
    return np.concatenate([half_bytes(d), _pack_low(codes)], axis=1)


def quantise_q4_1(x: F32) -> U8:
    """Bytes equal to the reference quantiser's."""
    d, low, codes = _from_range(x, 15)
    return np.concatenate([half_bytes(d), half_bytes(low), _pack_low(codes)], axis=1)


def quantise_q5_0(x: F32) -> U8:
    """Bytes equal to the reference quantiser's."""
    d, codes = _from_peak(x, 16)
    return np.concatenate([half_bytes(d), _pack_high(codes), _pack_low(codes)], axis=1)


def quantise_q5_1(x: F32) -> U8:
    """Bytes equal to the reference quantiser's."""
    d, low, codes = _from_range(x, 31)
    return np.concatenate([half_bytes(d), half_bytes(low), _pack_high(codes), _pack_low(codes)], axis=1)


def quantise_q8_0(x: F32) -> U8:
    """Bytes equal to the reference quantiser's: d = max|x| / 127, halves away from zero."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    codes = round_half_away(x * inverse(d)).astype(np.int8)
    return np.concatenate([half_bytes(d), codes.view(np.uint8)], axis=1)
