"""IQ1_S and IQ1_M: codewords of eight weights out of -1, 0, 1, all moved by an eighth up or down."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.codebooks.grids import grid
from strata.formats.fields import half, lanes, words

_DELTA = np.float32(0.125)
_THREES = np.array([0, 3, 6, 9], dtype=np.uint16)


def dequantise_iq1_s(blocks: U8) -> F32:
    """d, low index bytes 32, words 16; ``d * (2 * scale + 1) * (codeword + or - 1/8)``.

    A word serves 32 weights. It holds the top three bits of four indices (bits 0-11), the scale (bits 12-14), and the
    direction in which the codewords are moved (bit 15 set: down).
    """
    word = words(blocks, 34, 8)
    high = ((word[..., None] >> _THREES) & np.uint16(7)).reshape(-1, 32)
    codewords = grid("IQ1")[blocks[:, 2:34] | (high << np.uint16(8))].reshape(-1, 8, 32)
    scale = half(blocks, 0) * (2 * ((word >> np.uint16(12)) & np.uint16(7)) + 1).astype(np.float32)
    delta = np.where(word >> np.uint16(15), -_DELTA, _DELTA)
    return (scale[..., None] * (codewords + delta[..., None])).reshape(-1, 256)


def dequantise_iq1_m(blocks: U8) -> F32:
    """Low index bytes 32, nibbles 16, words 8 (scales and, spread over them, d); as IQ1_S, a scale per 16 weights.

    A nibble holds the top three bits of an index and the direction of its eight weights' move (set: down). A word holds
    four scales of three bits, each for 16 weights, and above them four bits of the float16 d, lowest word lowest.
    """
    word = words(blocks, 48, 4)
    d_bits = np.bitwise_or.reduce((word >> np.uint16(12)) << np.array([0, 4, 8, 12], dtype=np.uint16), axis=1)
    d = d_bits.view(np.float16).astype(np.float32)[:, None]
    scale = d * (2 * ((word[..., None] >> _THREES) & np.uint16(7)).reshape(-1, 16) + 1).astype(np.float32)
    nibble = lanes(blocks[:, 32:48], 4).reshape(-1, 32)
    index = blocks[:, :32] | ((nibble & np.uint16(7)) << np.uint16(8))
    delta = np.where(nibble >> np.uint8(3), -_DELTA, _DELTA)
    moved = (grid("IQ1")[index] + delta[..., None]).reshape(-1, 16, 16)
    weights: F32 = (scale[..., None] * moved).reshape(-1, 256)
    return weights
