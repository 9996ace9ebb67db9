"""A row of eight bits, as a device stores it, becomes the records that the CPU's kernels read."""

import numpy as np
from numba import njit

from strata.experts.kernels.memory import bytes_at, carray, codes_at, floats_at, ints_at
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD, SCALE_AT, START_AT, SUM_AT

SOURCES_BYTES = 4 * 2 * GROUP
"""Of what `sources` finds."""


@njit
def sources(order, blocks, to):
    """Where a group's bytes are found in a row of eight bits, counted from the group's first block.

    Args:
        order: address of the decoder's order, ``uint8 [256]``.
        blocks: of the row, K / 32.
        to: address of what is found, ``int32 [2, 256]``: places, and of which of the eight blocks.
    """
    places, found = carray(bytes_at(order), GROUP), carray(ints_at(to), 2 * GROUP)
    for i in range(GROUP):
        k = np.int64(places[i])
        found[i] = 16 * ((k >> 4 & 1) * blocks + (k >> 5)) + (k & 15)
        found[GROUP + i] = k >> 5


@njit
def _sum(codes):
    """Of half a block's codes."""
    half, total = carray(codes_at(codes), 16), np.int32(0)
    for i in range(16):
        total += np.int32(half[i])
    return total


@njit
def _start(record, ints, offset):
    """What the sums of a group's lanes begin with."""
    for lane in range(16):
        total = np.int32(0)
        if offset != 0:
            for register in range(4):
                for byte in range(4):
                    total += np.int32(record[64 * register + 4 * lane + byte])
        ints[START_AT // 4 + lane] = np.int32(-offset * total)


@njit
def arrange(codes, scales, width, source, offset, to):
    """A row of eight bits as the device has it, to the records of a kernel: `fill` behind its quantiser.

    Args:
        codes: address of ``int8 [2, K / 32, 16]``.
        scales: address of ``float32 [K / 32]``.
        width: K, a multiple of 32.
        source: address of what `sources` found.
        offset: the decoder's.
        to: address of the records, ``int8 [groups, 448]``.
    """
    blocks = width // 32
    s, found = carray(floats_at(scales), blocks), carray(ints_at(source), 2 * GROUP)
    for g in range((width + GROUP - 1) // GROUP):
        at = to + g * RECORD
        record, ints, floats = carray(codes_at(at), RECORD), carray(ints_at(at), 112), carray(floats_at(at), 112)
        first, here = 8 * g, min(8, blocks - 8 * g)
        given = carray(codes_at(codes + 16 * first), width)
        for b in range(8):
            scale, total, keep = np.float32(0), np.int32(0), np.int32(0)
            if b < here:
                scale, keep = s[first + b], np.int32(-1)
                total = _sum(codes + 16 * (first + b)) + _sum(codes + 16 * (blocks + first + b))
            floats[SCALE_AT // 4 + b] = scale
            floats[SUM_AT // 4 + b] = scale * np.float32(total)
            ints[KEEP_AT // 4 + b] = keep
        # Places are never negative, and Numba asks signed ones whether they are: 1.4 us a row of 2,560 instead of 0.8.
        if here == 8:
            for i in range(GROUP):
                record[i] = given[np.uint32(found[i])]
        else:
            for i in range(GROUP):
                record[i] = given[np.uint32(found[i])] if found[GROUP + i] < here else np.int8(0)
        _start(record, ints, offset)
