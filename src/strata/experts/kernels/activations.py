"""Activations for the quantised kernels: to int8 blocks of 32, and from there into a decoder's order."""

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.memory import bytes_at, carray, codes_at, floats_at, ints_at, stack
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD, SCALE_AT, START_AT, SUM_AT

_MAGIC = np.float32(12582912.0)
_SMALLEST = np.float32(2.0**-100)
_SMALLEST_BITS = np.int32(_SMALLEST.view(np.int32))
_WORDS = RECORD // 4


def _quantise(x, q, s):  # noqa: ANN001, ANN202  # compiled; types in the signature below
    for t in range(x.shape[0]):
        for b in range(s.shape[1]):
            peak = np.float32(0)
            for i in range(32 * b, 32 * b + 32):
                peak = max(peak, abs(x[t, i]))
            if peak < _SMALLEST:
                s[t, b] = np.float32(0)
                q[t, 32 * b : 32 * b + 32] = 0
            else:
                s[t, b] = peak / np.float32(127)
                inverse = np.float32(127) / peak
                for i in range(32 * b, 32 * b + 32):
                    q[t, i] = np.int8((x[t, i] * inverse + _MAGIC) - _MAGIC)


def _arrange(q, s, order, offset, bytes_, ints, floats):  # noqa: ANN001, ANN202  # compiled
    # The three last arguments are one buffer, seen as bytes, as int32 and as float32.
    width, blocks = q.shape[1], s.shape[1]
    for t in range(q.shape[0]):
        for g in range(bytes_.shape[1]):
            bytes_[t, g] = 0
            for lane in range(16):
                total = 0
                for register in range(4):
                    for byte in range(4):
                        k = GROUP * g + order[register, lane, byte]
                        if k < width:
                            code = q[t, k]
                            bytes_[t, g, 64 * register + 4 * lane + byte] = code
                            total += code
                ints[t, g, START_AT // 4 + lane] = np.int32(-offset * total)
            for b in range(min(8, blocks - 8 * g)):
                total = 0
                for i in range(32):
                    total += q[t, GROUP * g + 32 * b + i]
                scale = s[t, 8 * g + b]
                floats[t, g, SCALE_AT // 4 + b] = scale
                floats[t, g, SUM_AT // 4 + b] = scale * np.float32(total)
                ints[t, g, KEEP_AT // 4 + b] = np.int32(-1)


@cache
def _quantiser() -> Any:
    return compiled(_quantise, "void(float32[:,::1], int8[:,::1], float32[:,::1])")


@cache
def _arranger() -> Any:
    arrays = "int8[:,:,::1], int32[:,:,::1], float32[:,:,::1]"
    order = "Array(uint8, 3, 'C', readonly=True)"
    return compiled(_arrange, f"void(int8[:,::1], float32[:,::1], {order}, intp, {arrays})")


@njit
def fill(x, width, order, offset, to):  # noqa: ANN001, ANN201, C901, PLR0912  # compiled
    """Quantise a row and write its records: `quantise_rows` and `arrange` in one, for compiled code.

    Args:
        x: address of ``float32 [K]``.
        width: K, a multiple of 32.
        order: address of the decoder's order, ``uint8 [256]``.
        offset: the decoder's.
        to: address of the records, ``int8 [groups, 448]``.
    """
    values, bits, places = carray(floats_at(x), width), carray(ints_at(x), width), carray(bytes_at(order), GROUP)
    codes = carray(codes_at(stack(GROUP)), GROUP)
    for g in range((width + GROUP - 1) // GROUP):
        at = to + g * RECORD
        record, ints, floats = carray(codes_at(at), RECORD), carray(ints_at(at), _WORDS), carray(floats_at(at), _WORDS)
        for b in range(8):
            first = GROUP * g + 32 * b
            s, total, keep = np.float32(0), np.int32(0), np.int32(0)
            peak_bits = np.int32(0)
            if first < width:
                keep = np.int32(-1)
                for i in range(first, first + 32):  # magnitudes compare like the integers of their bits
                    peak_bits = max(peak_bits, bits[i] & np.int32(0x7FFFFFFF))
            if peak_bits < _SMALLEST_BITS:
                for i in range(32):
                    codes[32 * b + i] = np.int8(0)
            else:
                ints[SCALE_AT // 4 + b] = peak_bits
                peak = floats[SCALE_AT // 4 + b]
                s, inverse = peak / np.float32(127), np.float32(127) / peak
                for i in range(32):
                    codes[32 * b + i] = np.int8((values[first + i] * inverse + _MAGIC) - _MAGIC)
                for i in range(32):
                    total += np.int32(codes[32 * b + i])
            floats[SCALE_AT // 4 + b] = s
            floats[SUM_AT // 4 + b] = s * np.float32(total)
            ints[KEEP_AT // 4 + b] = keep
        for i in range(GROUP):
            record[i] = codes[places[i]]
        if offset == 0:
            for lane in range(16):
                ints[START_AT // 4 + lane] = np.int32(0)
        else:
            for lane in range(16):
                total = np.int32(0)
                for register in range(4):
                    for byte in range(4):
                        total += np.int32(record[64 * register + 4 * lane + byte])
                ints[START_AT // 4 + lane] = np.int32(-offset * total)


def quantise_rows(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """As `strata.experts.judge.quantise_rows`, byte for byte."""
    x = np.ascontiguousarray(x)
    q = np.empty(x.shape, dtype=np.int8)
    s = np.empty((x.shape[0], x.shape[1] // 32), dtype=np.float32)
    _quantiser()(x, q, s)
    return q, s


def aligned(size: int) -> NDArray[np.int8]:
    """Memory that starts at a cache line: ``int8 [size]``."""
    memory = np.empty(size + 64, dtype=np.int8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def arrange(q: NDArray[np.int8], s: NDArray[np.float32], order: NDArray[np.uint8], offset: int) -> NDArray[np.int8]:
    """Records of all rows: ``int8 [T, groups, 448]``, aligned to 64 bytes; see `strata.experts.kernels.record`."""
    shape = (q.shape[0], -(-q.shape[1] // GROUP), RECORD)
    records = aligned(int(np.prod(shape))).reshape(shape)
    q, s = np.ascontiguousarray(q), np.ascontiguousarray(s)
    _arranger()(q, s, order, offset, records, records.view(np.int32), records.view(np.float32))
    return records
