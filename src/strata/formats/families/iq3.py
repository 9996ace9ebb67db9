"""IQ3_XXS and IQ3_S: codewords of four magnitudes out of eight levels, and signs."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.codebooks.fit import Codebook, Fit
from strata.formats.codebooks.grids import grid
from strata.formats.codebooks.signs import even_signs, signs
from strata.formats.fields import half, half_bytes, lanes, long_words, pack_lanes

_XXS = Codebook("IQ3_XXS", group=32, first=0.25, step=0.5, even=True)  # d * (scale + 0.5) / 2
_S = Codebook("IQ3_S", group=32, first=1, step=2, even=False)  # d * (2 * scale + 1)
_SEVENS = np.array([0, 7, 14, 21], dtype=np.uint32)


def _weights(book: Codebook, d: F32, scales: U8, codewords: F32, sign: F32) -> F32:
    """``[n, 1]``, ``[n, 8]``, ``[n, 64, 4]``, ``[n, 32, 8] -> [n, 256]``."""
    scale = d * (np.float32(book.first) + np.float32(book.step) * scales)
    signed = codewords.reshape(-1, 8, 32) * sign.reshape(-1, 8, 32)
    weights: F32 = (scale[..., None] * signed).reshape(-1, 256)
    return weights


def dequantise_iq3_xxs(blocks: U8) -> F32:
    """d, index bytes 64, and for every 32 weights a long word: four times seven sign bits, and the scale."""
    word = long_words(blocks, 66, 8)
    seven = ((word[..., None] >> _SEVENS) & np.uint32(127)).reshape(-1, 32)
    scales = (word >> np.uint32(28)).astype(np.uint8)
    return _weights(_XXS, half(blocks, 0), scales, grid("IQ3_XXS")[blocks[:, 2:66]], even_signs(seven))


def dequantise_iq3_s(blocks: U8) -> F32:
    """d, low index bytes 64, top index bits 8, sign bytes 32, scale nibbles 4."""
    high = lanes(blocks[:, 66:74], 1).reshape(-1, 64)
    index = blocks[:, 2:66] | (high.astype(np.uint16) << np.uint16(8))
    scales = lanes(blocks[:, 106:], 4).reshape(-1, 8)
    return _weights(_S, half(blocks, 0), scales, grid("IQ3_S")[index], signs(blocks[:, 74:106]))


def _pack_iq3_xxs(fit: Fit) -> U8:
    sevens = (fit.signs & np.uint8(127)).astype(np.uint32).reshape(-1, 8, 4) << _SEVENS
    word = np.bitwise_or.reduce(sevens, axis=-1) | (fit.scales.astype(np.uint32) << np.uint32(28))
    return np.concatenate([half_bytes(fit.d), fit.index.astype(np.uint8), word.astype("<u4").view(np.uint8)], axis=1)


def _pack_iq3_s(fit: Fit) -> U8:
    low, high = (fit.index & 255).astype(np.uint8), (fit.index >> 8).astype(np.uint8)
    top = pack_lanes(high.reshape(-1, 8, 8), 1)
    scales = pack_lanes(fit.scales.reshape(-1, 4, 2), 4)
    return np.concatenate([half_bytes(fit.d), low, top, fit.signs, scales], axis=1)


def quantise_iq3_xxs(x: F32) -> U8:
    """Nearest codewords; see `Codebook`."""
    return _XXS.quantise(x, _pack_iq3_xxs, dequantise_iq3_xxs)


def quantise_iq3_s(x: F32) -> U8:
    """Nearest codewords; see `Codebook`."""
    return _S.quantise(x, _pack_iq3_s, dequantise_iq3_s)
