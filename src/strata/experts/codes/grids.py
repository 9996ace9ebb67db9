"""Types whose codes are codewords of a grid: IQ1_M, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S."""

import numpy as np
from numpy.typing import NDArray

from strata.experts.codes.codes import F32, Codes
from strata.formats.block import U8
from strata.formats.codebooks.grids import grid
from strata.formats.codebooks.signs import even_signs, signs
from strata.formats.fields import half, lanes, long_words, words

_THREES = np.array([0, 3, 6, 9], dtype=np.uint16)
_SEVENS = np.array([0, 7, 14, 21], dtype=np.uint32)


def _signed(codewords: F32, sign: F32) -> NDArray[np.int8]:
    signed = codewords.reshape(len(sign), 8, 32) * sign.reshape(-1, 8, 32)
    return signed.astype(np.int8)


def _odd(scales: U8) -> NDArray[np.int32]:
    """The stored scale s as the odd number 2 s + 1."""
    return 2 * scales.astype(np.int32) + 1


def iq3_xxs(blocks: U8) -> Codes:
    """Codeword and sign; W = d / 4 * (2 s + 1)."""
    word = long_words(blocks, 66, 8)
    seven = ((word[..., None] >> _SEVENS) & np.uint32(127)).reshape(-1, 32)
    scale = _odd((word >> np.uint32(28)).astype(np.uint8)).astype(np.float32)
    codes = _signed(grid("IQ3_XXS")[blocks[:, 2:66]], even_signs(seven))
    return Codes(codes, (half(blocks, 0) * np.float32(0.25) * scale)[..., None])


def iq3_s(blocks: U8) -> Codes:
    """Codeword and sign; W = d * (2 s + 1)."""
    high = lanes(blocks[:, 66:74], 1).reshape(-1, 64)
    index = blocks[:, 2:66] | (high.astype(np.uint16) << np.uint16(8))
    scale = _odd(lanes(blocks[:, 106:], 4).reshape(-1, 8)).astype(np.float32)
    return Codes(_signed(grid("IQ3_S")[index], signs(blocks[:, 74:106])), (half(blocks, 0) * scale)[..., None])


def _iq2(blocks: U8, codewords: F32, sign: F32, scales: U8) -> Codes:
    unit = np.broadcast_to((half(blocks, 0) * np.float32(0.125))[..., None], (len(blocks), 8, 1))
    return Codes(_signed(codewords, sign), unit, _odd(scales).reshape(-1, 8, 2))


def iq2_xs(blocks: U8) -> Codes:
    """Codeword and sign, times the step 2 s + 1; W = d / 8."""
    word = words(blocks, 2, 32)
    scales = lanes(blocks[:, 66:], 4).reshape(-1, 16)
    return _iq2(blocks, grid("IQ2_XS")[word & np.uint16(511)], even_signs(word >> np.uint16(9)), scales)


def iq2_s(blocks: U8) -> Codes:
    """As IQ2_XS, with a larger grid and all eight signs stored."""
    high = lanes(blocks[:, 66:74], 2).reshape(-1, 32)
    index = blocks[:, 2:34] | (high.astype(np.uint16) << np.uint16(8))
    return _iq2(blocks, grid("IQ2_S")[index], signs(blocks[:, 34:66]), lanes(blocks[:, 74:], 4).reshape(-1, 16))


def iq1_m(blocks: U8) -> Codes:
    """Eight times the moved codeword: -9, -7, -1, 1, 7, 9; step 2 s + 1; W = d / 8."""
    word = words(blocks, 48, 4)
    bits = np.bitwise_or.reduce((word >> np.uint16(12)) << np.array([0, 4, 8, 12], dtype=np.uint16), axis=1)
    d = bits.view(np.float16).astype(np.float32)[:, None, None]
    step = _odd(((word[..., None] >> _THREES) & np.uint16(7)).astype(np.uint8)).reshape(-1, 8, 2)
    nibble = lanes(blocks[:, 32:48], 4).reshape(-1, 32)
    index = blocks[:, :32] | ((nibble & np.uint16(7)) << np.uint16(8))
    moved = 8 * grid("IQ1")[index] + np.where(nibble >> np.uint8(3), -1, 1)[..., None]
    unit = np.broadcast_to(d * np.float32(0.125), (len(blocks), 8, 1))
    return Codes(moved.astype(np.int8).reshape(-1, 8, 32), unit, step)
