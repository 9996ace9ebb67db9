"""IQ4_NL and IQ4_XS: 4-bit codes into one table of 16 unevenly spaced levels."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import as_half, half, half_bytes, lanes, pack_planes, planes, words
from strata.formats.scales import fit_scale, inverse

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)

# The borders between neighbouring levels are multiples of a half, so floor(2 v) decides which level is nearest.
_BIAS = 256
_NEAREST = np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, (np.arange(512) - _BIAS) / 2, side="right").astype(np.uint8)

# The largest magnitude lands on a level between 91 and 151, of either sign: most blocks want it at -127 or at 113, some
# beyond the table's end, which leaves finer steps to the rest. A finer or longer list gains less than 0.1%.
_FACTORS = [sign * (91.0 + 3 * step) for step in range(21) for sign in (1, -1)]


def dequantise_iq4_nl(blocks: U8) -> F32:
    """d, 16 nibble bytes as in Q4_0; ``d * level[code]``."""
    return half(blocks, 0) * LEVELS[planes(blocks[:, 2:], 4).reshape(-1, 32)]


def dequantise_iq4_xs(blocks: U8) -> F32:
    """d, top scale bits 2, scale nibbles 4, code nibbles 128; ``d * (scale - 32) * level[code]``."""
    high = words(blocks, 2, 1) >> np.arange(0, 16, 2, dtype=np.uint16)
    low = lanes(blocks[:, 4:8], 4).reshape(-1, 8)
    scale = half(blocks, 0) * ((low | ((high & 3) << 4)).astype(np.float32) - 32)
    levels = LEVELS[planes(blocks[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)]
    return (scale[..., None] * levels).reshape(-1, 256)


def _codes(x: F32) -> U8:
    place = np.clip(np.floor(x * 2) + _BIAS, 0, len(_NEAREST) - 1)
    codes: U8 = _NEAREST[place.astype(np.intp)]
    return codes


def _nearest(x: F32) -> F32:
    return LEVELS[_codes(x)]


def quantise_iq4_nl(x: F32) -> U8:
    """A search over the scale, with both signs of d, refitted by least squares; the nearest level for each weight."""
    d = as_half(fit_scale(x, _FACTORS, _nearest))
    codes = _codes(x * inverse(d))
    return np.concatenate([half_bytes(d), pack_planes(codes.reshape(-1, 2, 16), 4)], axis=1)
