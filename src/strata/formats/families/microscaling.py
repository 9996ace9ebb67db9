"""MXFP4 and NVFP4: 4-bit floats (E2M1) under an 8-bit scale."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import pack_planes, planes
from strata.formats.scales import nearest_blocks

# E2M1 values, doubled so that they are whole. Code 8 is minus zero; it reads as plain zero.
LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)
_BORDERS = (LEVELS[1:8] + LEVELS[:7]) / 2

# 2^(e - 128): E8M0, bias 127, halved because the levels are doubled. The two smallest are subnormal float32 numbers.
_E8M0 = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def _ue4m3() -> F32:
    """E4M3 without sign, bias 7, halved because the levels are doubled. Bit 7 is ignored and 0x7F reads as zero."""
    byte = np.arange(256)
    exponent, fraction = (byte >> 3) & 15, byte & 7
    value = np.where(exponent == 0, np.ldexp(fraction, -9), np.ldexp(8 + fraction, exponent - 10)) / 2
    return np.where(byte == 0x7F, 0, value).astype(np.float32)


_UE4M3 = _ue4m3()


def dequantise_mxfp4(blocks: U8) -> F32:
    """Exponent byte e, 16 nibble bytes as in Q4_0; ``2^(e - 128) * level[code]``."""
    return _E8M0[blocks[:, :1]] * LEVELS[planes(blocks[:, 1:], 4).reshape(-1, 32)]


def dequantise_nvfp4(blocks: U8) -> F32:
    """Scale bytes 4, each for 16 weights in 8 nibble bytes; ``scale * level[code] / 2``, times the tensor's scale.

    The last factor is not in the block: see `strata.formats.apply_tensor_scale`. In a group, byte j holds weight j and,
    in its high nibble, weight j + 8.
    """
    levels = LEVELS[planes(blocks[:, 4:].reshape(-1, 4, 8), 4).reshape(-1, 4, 16)]
    return (_UE4M3[blocks[:, :4]][..., None] * levels).reshape(-1, 64)


def _encode(x: F32, exponent: U8) -> U8:
    target = np.abs(x) / _E8M0[exponent]
    codes = np.searchsorted(_BORDERS, target, side="left").astype(np.uint8)  # a tie goes to the smaller magnitude
    codes |= ((x < 0) & (codes > 0)).astype(np.uint8) << np.uint8(3)
    return np.concatenate([exponent, pack_planes(codes.reshape(-1, 2, 16), 4)], axis=1)


def quantise_mxfp4(x: F32) -> U8:
    """The standard exponent, ``floor(log2 max|x|) - 2``, or one of its neighbours if that is nearer.

    With the standard one, a peak between 6 and 8 units is cut to 6; a block that suffers from it takes the next
    exponent. The reference quantiser always takes the standard one.
    """
    largest = np.abs(x).max(axis=1, keepdims=True)
    _, power = np.frexp(largest)  # largest lies in [2^(power-1), 2^power)
    standard = np.where(largest > 0, power.astype(np.int64) - 1 - 2 + 127, 0)
    options = [_encode(x, np.clip(standard + step, 0, 254).astype(np.uint8)) for step in (0, 1, -1)]
    return nearest_blocks(x, options, dequantise_mxfp4)
