"""Q2_K, Q4_K and Q5_K: 256 weights in groups, each group with a scale and a minimum that is subtracted.

This module reads and packs; `strata.formats.families.k_minimum_fit` chooses scales and minimums.
"""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.families.k_minimum_fit import Fit, fitted, flat
from strata.formats.fields import half, half_bytes, pack_planes, planes
from strata.formats.scales import nearest_blocks


def dequantise_q2_k(blocks: U8) -> F32:
    """Scale and minimum nibbles 16, codes 64, d, dmin; ``d * scale * code - dmin * minimum``."""
    scale = half(blocks, 80) * (blocks[:, :16] & np.uint8(15)).astype(np.float32)
    minimum = half(blocks, 82) * (blocks[:, :16] >> np.uint8(4)).astype(np.float32)
    codes = planes(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16).astype(np.float32)
    return (scale[..., None] * codes - minimum[..., None]).reshape(-1, 256)


def _six_bit_pairs(packed: U8) -> tuple[U8, U8]:
    """Eight scales and eight minimums of 6 bits in 12 bytes: ``uint8 [n, 12] -> [n, 8], [n, 8]``.

    Bytes 0-3 hold scales 0-3, bytes 4-7 minimums 0-3, in their low six bits. The low nibbles of scales 4-7 are the
    low nibbles of bytes 8-11, those of minimums 4-7 the high nibbles; their top two bits sit above bytes 0-3 and 4-7.
    """
    a, b, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    six, top, nibble = np.uint8(63), np.uint8(0x30), np.uint8(15)
    scales = np.concatenate([a & six, (low & nibble) | ((a >> np.uint8(2)) & top)], axis=1)
    minimums = np.concatenate([b & six, (low >> np.uint8(4)) | ((b >> np.uint8(2)) & top)], axis=1)
    return scales, minimums


def _pack_six_bit_pairs(scales: U8, minimums: U8) -> U8:
    nibble, two, four = np.uint8(15), np.uint8(2), np.uint8(4)
    top = np.uint8(0xC0)
    a = scales[:, :4] | ((scales[:, 4:] << two) & top)
    b = minimums[:, :4] | ((minimums[:, 4:] << two) & top)
    low = (scales[:, 4:] & nibble) | ((minimums[:, 4:] & nibble) << four)
    return np.concatenate([a, b, low], axis=1)


def _affine(blocks: U8, codes: U8) -> F32:
    scales, minimums = _six_bit_pairs(blocks[:, 4:16])
    scale = half(blocks, 0) * scales.astype(np.float32)
    minimum = half(blocks, 2) * minimums.astype(np.float32)
    return (scale[..., None] * codes.astype(np.float32) - minimum[..., None]).reshape(-1, 256)


def dequantise_q4_k(blocks: U8) -> F32:
    """d, dmin, 6-bit scales and minimums 12, nibbles 128; ``d * scale * code - dmin * minimum``."""
    return _affine(blocks, planes(blocks[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32))


def dequantise_q5_k(blocks: U8) -> F32:
    """d, dmin, scales and minimums 12, fifth bits 32, nibbles 128; as Q4_K."""
    low = planes(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return _affine(blocks, low | (planes(blocks[:, 16:48], 1) << np.uint8(4)))


def _head(fit: Fit) -> U8:
    return np.concatenate(
        [half_bytes(fit.d), half_bytes(fit.dmin), _pack_six_bit_pairs(fit.scales, fit.minimums)], axis=1
    )


def _nibbles(fit: Fit) -> U8:
    return pack_planes((fit.codes & np.uint8(15)).reshape(-1, 4, 2, 32), 4).reshape(-1, 128)


def _pack_q4_k(fit: Fit) -> U8:
    return np.concatenate([_head(fit), _nibbles(fit)], axis=1)


def _pack_q5_k(fit: Fit) -> U8:
    return np.concatenate([_head(fit), pack_planes(fit.codes >> np.uint8(4), 1), _nibbles(fit)], axis=1)


def quantise_q4_k(x: F32) -> U8:
    """Scales and minimums by search and least squares."""
    groups = x.reshape(-1, 8, 32)
    return nearest_blocks(x, [_pack_q4_k(fitted(groups, 15)), _pack_q4_k(flat(groups, 15))], dequantise_q4_k)


def quantise_q5_k(x: F32) -> U8:
    """Scales and minimums by search and least squares."""
    groups = x.reshape(-1, 8, 32)
    return nearest_blocks(x, [_pack_q5_k(fitted(groups, 31)), _pack_q5_k(flat(groups, 31))], dequantise_q5_k)
