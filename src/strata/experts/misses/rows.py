"""A row of eight bits, as a device stores it, becomes the records that the CPU's kernels read.

One thread does this before any other can begin, so it moves words of four bytes: a decoder's lanes hold four weights
that are neighbours, or, in order `PLANES`, every fourth of sixteen, which are neighbours once the sixteen are turned. A
row of 2,560 takes 0.55 us so, 1.3 byte by byte (one processor of an EPYC).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numpy.typing import NDArray

from strata.experts.kernels.emit import I8, I32
from strata.experts.kernels.memory import carray, codes_at, floats_at, intrinsic, ints_at, longs_at
from strata.experts.kernels.order import Order
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD, SCALE_AT, START_AT, SUM_AT

_BYTES, _FOURS, _PLANES = range(3)
_UP, _LOW, _ONES = np.int64(-0x7F7F7F7F7F7F7F80), np.int64(0x00FF00FF00FF00FF), np.int64(0x0001000100010001)
_UP4, _LOW4, _LAST = np.int32(-0x7F7F7F80), np.int32(0x00FF00FF), np.int32(0xFFFF)


def table(order: Order, blocks: int) -> NDArray[np.int32]:
    """Where a group's bytes are found in a row of eight bits, counted from the group's first block.

    Args:
        order: the decoder's, ``uint8 [256]`` in any shape.
        blocks: of the row, K / 32.

    Returns:
        ``int32 [1 + 2 * 256]``: whether lanes hold neighbours, every fourth, or anything; where each is (words of four,
        in the row as it is or turned, or bytes); and in which of the eight blocks.
    """
    k = order.reshape(-1).astype(np.int32)
    at = 16 * ((k >> 4 & 1) * blocks + (k >> 5)) + (k & 15)
    first, byte, found = np.repeat(k[::4], 4), np.arange(GROUP) % 4, np.zeros(1 + 2 * GROUP, np.int32)
    if ((first % 4 == 0) & (k == first + byte)).all():
        found[0], k, at = _FOURS, k[::4], at[::4] >> 2
    elif ((first % 16 < 4) & (k == first + 4 * byte)).all():
        found[0], k, at = _PLANES, k[::4], (at[::4] >> 4 << 2) + (at[::4] & 3)
    found[1 : 1 + len(at)], found[1 + GROUP : 1 + GROUP + len(k)] = at, k >> 5
    return found


@intrinsic
def _turned(_context: Any, source: Any, to: Any) -> Any:
    """Sixteen bytes, seen as four rows of four, become four columns."""
    kind, mask = ir.VectorType(I8, 16), ir.VectorType(I32, 16)

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        source, to = (builder.inttoptr(argument, kind.as_pointer()) for argument in arguments)
        given = builder.load(source, align=1)
        turned = ir.Constant(mask, [4 * (i & 3) + (i >> 2) for i in range(16)])
        builder.store(builder.shuffle_vector(given, ir.Constant(kind, ir.Undefined), turned), to, align=1)
        return context.get_dummy_value()

    return types.void(source, to), codegen


@njit
def _lay(codes, found, here, record, ints):
    """A group's codes, in the decoder's order; behind the row's end are none."""
    given, words = carray(codes_at(codes), 1), carray(ints_at(codes), 1)
    # Places are never negative, and Numba asks signed ones whether they are.
    if found[0] == _BYTES:
        for i in range(GROUP):
            record[i] = given[np.uint32(found[1 + i])] if found[1 + GROUP + i] < here else np.int8(0)
    elif here == 8:
        for i in range(GROUP // 4):
            ints[i] = words[np.uint32(found[1 + i])]
    else:
        for i in range(GROUP // 4):
            ints[i] = words[np.uint32(found[1 + i])] if found[1 + GROUP + i] < here else np.int32(0)


@njit
def _sum(low, high):
    """Of a block's codes: 128 up, so that bytes have no signs; as pairs, and these as one."""
    lows, highs, pairs = carray(longs_at(low), 2), carray(longs_at(high), 2), np.int64(0)
    for i in range(2):
        a, b = lows[i] ^ _UP, highs[i] ^ _UP
        pairs += (a & _LOW) + (a >> 8 & _LOW) + (b & _LOW) + (b >> 8 & _LOW)
    return np.int32((pairs * _ONES >> 48 & 0xFFFF) - 32 * 128)


@njit
def _start(ints, offset):
    """What the sums of a group's lanes begin with: as `_sum`, of a word in each register."""
    for lane in range(16):
        pairs = np.int32(0)
        for register in range(4):
            up = ints[16 * register + lane] ^ _UP4
            pairs += (up & _LOW4) + (up >> np.int32(8) & _LOW4)
        ints[START_AT // 4 + lane] = np.int32(-offset) * (
            (pairs & _LAST) + (pairs >> np.int32(16)) - np.int32(16 * 128)
        )


@njit
def arrange(codes, scales, width, places, offset, room, to):
    """A row of eight bits as the device has it, to the records of a kernel: `fill` behind its quantiser.

    What one pass writes the next ones read, and a processor waits if that was a moment ago in smaller pieces.

    Args:
        codes: address of ``int8 [2, K / 32, 16]``.
        scales: address of ``float32 [K / 32]``.
        width: K, a multiple of 32.
        places: address of the order's `table`.
        offset: the decoder's.
        room: address of as many bytes as the row has.
        to: address of the records, ``int8 [groups, 448]``.
    """
    blocks, groups = width // 32, (width + GROUP - 1) // GROUP
    s, found, given = carray(floats_at(scales), blocks), carray(ints_at(places), 1 + 2 * GROUP), codes
    if found[0] == _PLANES:
        given = room
        for half in range(2 * blocks):
            _turned(codes + 16 * half, given + 16 * half)
    for g in range(groups):
        at = to + g * RECORD
        record, ints = carray(codes_at(at), RECORD), carray(ints_at(at), RECORD // 4)
        _lay(given + 128 * g, found, min(8, blocks - 8 * g), record, ints)
    for g in range(groups):
        at = to + g * RECORD
        ints, floats = carray(ints_at(at), RECORD // 4), carray(floats_at(at), RECORD // 4)
        here = min(8, blocks - 8 * g)
        for b in range(here):
            low, scale = codes + 16 * (8 * g + b), s[8 * g + b]
            floats[SCALE_AT // 4 + b] = scale
            floats[SUM_AT // 4 + b] = scale * np.float32(_sum(low, low + 16 * blocks))
            ints[KEEP_AT // 4 + b] = np.int32(-1)
        for b in range(here, 8):
            floats[SCALE_AT // 4 + b] = floats[SUM_AT // 4 + b] = np.float32(0)
            ints[KEEP_AT // 4 + b] = np.int32(0)
    for g in range(groups):
        _start(carray(ints_at(to + g * RECORD), RECORD // 4), offset)
