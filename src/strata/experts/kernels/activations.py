"""Activations for the quantised kernels: to int8 blocks of 32, and from there into a decoder's order."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD, SCALE_AT, START_AT, SUM_AT

_MAGIC = np.float32(12582912.0)
_SMALLEST = np.float32(2.0**-100)


def _quantise(x, q, s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled; types in the signature below
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


def _arrange(q, s, order, offset, bytes_, ints, floats):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
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
