"""IQ2_XXS, IQ2_XS and IQ2_S: codewords of eight magnitudes out of 8, 25, 43, and signs."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.codebooks.fit import Codebook, Fit
from strata.formats.codebooks.grids import grid
from strata.formats.codebooks.signs import even_signs, signs
from strata.formats.fields import half, half_bytes, lanes, long_words, pack_lanes, words

# d * (scale + 0.5) / 4
_FIRST, _STEP = 0.125, 0.25
_XS = Codebook("IQ2_XS", group=16, first=_FIRST, step=_STEP, even=True)
_S = Codebook("IQ2_S", group=16, first=_FIRST, step=_STEP, even=False)


def _weights(d: F32, scales: U8, codewords: F32, sign: F32) -> F32:
    """``[n, 1]``, ``[n, groups]``, ``[n, 32, 8]``, ``[n, 32, 8] -> [n, 256]``."""
    scale = d * (np.float32(_FIRST) + np.float32(_STEP) * scales)
    signed = (codewords * sign).reshape(*scales.shape, -1)
    weights: F32 = (scale[..., None] * signed).reshape(-1, 256)
    return weights


def dequantise_iq2_xxs(blocks: U8) -> F32:
    """d, and for every 32 weights four index bytes and a long word: four times seven sign bits, and the scale."""
    pair = long_words(blocks, 2, 16).reshape(-1, 8, 2)[..., 1]
    index = blocks[:, 2:].reshape(-1, 8, 8)[..., :4].reshape(-1, 32)
    seven = (pair[..., None] >> np.array([0, 7, 14, 21], dtype=np.uint32)) & np.uint32(127)
    scales = (pair >> np.uint32(28)).astype(np.uint8)
    return _weights(half(blocks, 0), scales, grid("IQ2_XXS")[index], even_signs(seven.reshape(-1, 32)))


def dequantise_iq2_xs(blocks: U8) -> F32:
    """d, words 64 (index 9 bits, signs 7), scale nibbles 8, each for 16 weights."""
    word = words(blocks, 2, 32)
    scales = lanes(blocks[:, 66:], 4).reshape(-1, 16)
    return _weights(half(blocks, 0), scales, grid("IQ2_XS")[word & np.uint16(511)], even_signs(word >> np.uint16(9)))


def dequantise_iq2_s(blocks: U8) -> F32:
    """d, low index bytes 32, sign bytes 32, top index bits 8, scale nibbles 8."""
    high = lanes(blocks[:, 66:74], 2).reshape(-1, 32)
    index = blocks[:, 2:34] | (high.astype(np.uint16) << np.uint16(8))
    scales = lanes(blocks[:, 74:], 4).reshape(-1, 16)
    return _weights(half(blocks, 0), scales, grid("IQ2_S")[index], signs(blocks[:, 34:66]))


def _nibbles(scales: U8) -> U8:
    return pack_lanes(scales.reshape(len(scales), -1, 2), 4)


def _pack_iq2_xs(fit: Fit) -> U8:
    word = fit.index.astype("<u2") | ((fit.signs & np.uint8(127)).astype("<u2") << np.uint16(9))
    return np.concatenate([half_bytes(fit.d), word.view(np.uint8), _nibbles(fit.scales)], axis=1)


def _pack_iq2_s(fit: Fit) -> U8:
    low, high = (fit.index & 255).astype(np.uint8), (fit.index >> 8).astype(np.uint8)
    top = pack_lanes(high.reshape(-1, 8, 4), 2)
    return np.concatenate([half_bytes(fit.d), low, fit.signs, top, _nibbles(fit.scales)], axis=1)


def quantise_iq2_xs(x: F32) -> U8:
    """Nearest codewords; see `Codebook`."""
    return _XS.quantise(x, _pack_iq2_xs, dequantise_iq2_xs)


def quantise_iq2_s(x: F32) -> U8:
    """Nearest codewords; see `Codebook`."""
    return _S.quantise(x, _pack_iq2_s, dequantise_iq2_s)
