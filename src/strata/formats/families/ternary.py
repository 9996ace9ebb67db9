"""TQ1_0 and TQ2_0: 256 weights out of -d, 0, d, with the float16 scale at the end of the block."""

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import half, half_bytes, pack_planes, planes
from strata.formats.scales import inverse, round_half_away

# TQ1_0 keeps five base-3 digits in a byte (four in the last four bytes) as a fixed-point fraction of 256, so that
# multiplying the byte by 3 pushes the leading digit out at the top. Runs of bytes, and digits per byte:
_RUNS = ((0, 32, 5), (32, 48, 5), (48, 52, 4))
_POWERS = np.array([1, 3, 9, 27, 81], dtype=np.uint8)


def dequantise_tq1_0(blocks: U8) -> F32:
    """52 bytes of base-3 digits, d; ``d * (digit - 1)``."""
    digits = []
    for start, end, count in _RUNS:
        shifted = blocks[:, None, start:end] * _POWERS[:count, None]  # uint8: wraps on purpose
        digits.append((shifted.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).reshape(len(blocks), -1))
    return half(blocks, 52) * (np.concatenate(digits, axis=1).astype(np.float32) - 1)


def dequantise_tq2_0(blocks: U8) -> F32:
    """64 bytes of 2-bit codes in planes of 32, d; ``d * (code - 1)``."""
    codes = planes(blocks[:, :64].reshape(-1, 2, 32), 2).reshape(-1, 256)
    return half(blocks, 64) * (codes.astype(np.float32) - 1)


def _digits(x: F32) -> tuple[F32, U8]:
    """Scale ``max|x|`` and the codes 0, 1, 2 of -d, 0, d."""
    d = np.abs(x).max(axis=1, keepdims=True)
    return d, (round_half_away(x * inverse(d)) + 1).astype(np.uint8)


def quantise_tq1_0(x: F32) -> U8:
    """Bytes equal to the reference quantiser's."""
    d, codes = _digits(x)
    packed = []
    start = 0
    for first, end, count in _RUNS:
        stop = start + (end - first) * count
        run = codes[:, start:stop].reshape(len(x), count, -1).astype(np.uint16)
        number = (run * _POWERS[::-1][:count, None]).sum(axis=1, dtype=np.uint16)
        packed.append(((number * np.uint16(256) + np.uint16(242)) // np.uint16(243)).astype(np.uint8))
        start = stop
    return np.concatenate([*packed, half_bytes(d)], axis=1)


def quantise_tq2_0(x: F32) -> U8:
    """Bytes equal to the reference quantiser's; code 3 is never written."""
    d, codes = _digits(x)
    return np.concatenate([pack_planes(codes.reshape(-1, 2, 4, 32), 2).reshape(-1, 64), half_bytes(d)], axis=1)
