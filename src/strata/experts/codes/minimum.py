"""Types with something added to every weight of a block: Q4_1, Q5_1, Q4_K, Q5_K."""

import numpy as np

from strata.experts.codes.codes import F32, Codes
from strata.formats.block import U8
from strata.formats.fields import half, lanes, planes


def q4_1(blocks: U8) -> Codes:
    """0..15; W = d, M = m."""
    codes = planes(blocks[:, 4:], 4).reshape(-1, 1, 32)
    return Codes(codes.view(np.int8), half(blocks, 0)[..., None], minimum=half(blocks, 2))


def q5_1(blocks: U8) -> Codes:
    """0..31; W = d, M = m."""
    high = lanes(blocks[:, 4:8], 1).reshape(-1, 1, 32) << np.uint8(4)
    codes = planes(blocks[:, 8:], 4).reshape(-1, 1, 32) | high
    return Codes(codes.view(np.int8), half(blocks, 0)[..., None], minimum=half(blocks, 2))


def q4_k(blocks: U8) -> Codes:
    """0..15; W = d * scale, M = -(dmin * minimum), both of at most 17 bits."""
    return _k(blocks, planes(blocks[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32))


def q5_k(blocks: U8) -> Codes:
    """0..31; otherwise as Q4_K."""
    low = planes(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return _k(blocks, low | (planes(blocks[:, 16:48], 1) << np.uint8(4)))


def _k(blocks: U8, codes: U8) -> Codes:
    first, second, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = _six_bits(first, low & np.uint8(15))
    minimum = _six_bits(second, low >> np.uint8(4))
    return Codes(codes.view(np.int8), (half(blocks, 0) * scale)[..., None], minimum=-(half(blocks, 2) * minimum))


def _six_bits(bytes_: U8, low: U8) -> F32:
    """Four numbers in the low six bits of four bytes, four more with their top two bits above those."""
    upper = low | ((bytes_ >> np.uint8(2)) & np.uint8(0x30))
    return np.concatenate([bytes_ & np.uint8(63), upper], axis=1).astype(np.float32)
