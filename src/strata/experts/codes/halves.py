"""Types with a scale per 16 weights and plain codes: Q6_K (integer scales) and NVFP4 (floats of 8 bits)."""

import numpy as np

from strata.experts.codes.codes import Codes
from strata.formats.block import U8
from strata.formats.families.microscaling import LEVELS as E2M1_LEVELS
from strata.formats.fields import half, planes


def q6_k(blocks: U8) -> Codes:
    """-32..31 times an int8 step; W = d."""
    low = planes(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 8, 32)
    high = planes(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    codes = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    step = blocks[:, 192:208].view(np.int8).astype(np.int32).reshape(-1, 8, 2)
    unit = np.broadcast_to(half(blocks, 208)[..., None], (len(blocks), 8, 1))
    return Codes(codes, unit, step)


def nvfp4(blocks: U8) -> Codes:
    """The doubled level; W for each half by itself: E4M3 without sign, halved."""
    levels = E2M1_LEVELS.astype(np.int8)[planes(blocks[:, 4:].reshape(-1, 4, 8), 4)]
    byte = blocks[:, :4].astype(np.int32) & 127
    exponent, fraction = byte >> 3, byte & 7
    value = np.where(exponent == 0, np.ldexp(fraction, -10), np.ldexp(8 + fraction, exponent - 11))
    # Only the exact byte 0x7F reads as zero; 0xFF, with the ignored bit set, reads as 240.
    unit = np.where(blocks[:, :4] == 0x7F, 0, value).astype(np.float32)
    return Codes(levels.reshape(-1, 2, 32), unit.reshape(-1, 2, 2))
