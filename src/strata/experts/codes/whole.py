"""Types whose 32 weights share one scale and nothing else: Q8_0, Q2_0, IQ4_NL, IQ4_XS, MXFP4."""

import numpy as np

from strata.experts.codes.codes import Codes
from strata.formats.block import U8
from strata.formats.families.iq4 import LEVELS as IQ4_LEVELS
from strata.formats.families.microscaling import LEVELS as E2M1_LEVELS
from strata.formats.fields import half, lanes, planes, words


def q8_0(blocks: U8) -> Codes:
    """The stored bytes; W = d."""
    return Codes(blocks[:, None, 2:].view(np.int8), half(blocks, 0)[..., None])


def q2_0(blocks: U8) -> Codes:
    """-1, 0, 1, 2; W = d for both (or all four) blocks of 32 under it."""
    codes = lanes(blocks[:, 2:], 2).reshape(len(blocks), -1, 32).astype(np.int8) - np.int8(1)
    unit = np.broadcast_to(half(blocks, 0)[..., None], (*codes.shape[:2], 1))
    return Codes(codes, unit)


def iq4_nl(blocks: U8) -> Codes:
    """The level; W = d."""
    levels = IQ4_LEVELS.astype(np.int8)[planes(blocks[:, 2:], 4).reshape(-1, 1, 32)]
    return Codes(levels, half(blocks, 0)[..., None])


def iq4_xs(blocks: U8) -> Codes:
    """The level; W = d * (scale - 32), at most 17 bits."""
    high = words(blocks, 2, 1) >> np.arange(0, 16, 2, dtype=np.uint16)
    scale = (lanes(blocks[:, 4:8], 4).reshape(-1, 8) | ((high & 3) << 4)).astype(np.float32) - 32
    levels = IQ4_LEVELS.astype(np.int8)[planes(blocks[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)]
    return Codes(levels, (half(blocks, 0) * scale)[..., None])


def mxfp4(blocks: U8) -> Codes:
    """The doubled level; W = 2^(e - 128)."""
    levels = E2M1_LEVELS.astype(np.int8)[planes(blocks[:, 1:], 4).reshape(-1, 1, 32)]
    unit = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128).astype(np.float32)
    return Codes(levels, unit[..., None])
