"""Many reads in one compiled loop: a thread takes one after another without the interpreter.

An item is eight words, one line of the cache: descriptor, where in the file, bytes to read, bytes of these that must
come, how many of them go before what is wanted, bytes wanted, their address, and what became of it. Direct reads want
whole blocks on both sides. Either the wanted bytes lie in memory as they do in their blocks, then a read goes straight
there, with what surrounds it; or it goes through a buffer of the thread.
"""

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from strata.errors import StrataError
from strata.experts.kernels.cached import compiled
from strata.experts.kernels.emit import I32, I64
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import bytes_at, carray, intrinsic, peek, poke
from strata.experts.pool.atomics import add, load

# Words of an item, in bytes. The block and the way of reading share one word: 2 * block + (1 where in place).
FILE, OFFSET, ROOM, NEEDED, SKIP, WANTED, TO, RESULT = range(0, 64, 8)
ITEM = 64

SCRATCH = 1 << 18
"""Bytes of a thread's buffer; longer reads that are not in place go through it in pieces."""

SHORT = -(1 << 20)
"""An item's result where the file ended before its bytes; other failures are negated error numbers."""

EINTR = 4

# A batch: address of its items, how many, the next to take, and whether to stop.
ITEMS, COUNT, NEXT, STOP = range(0, 32, 8)


@intrinsic
def _call4(_context: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """``int64 function(int64, int64, int64, int64)`` by its address."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(I64, [I64] * 4)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(*(types.int64,) * 5), codegen


@intrinsic
def _error(_context: Any, function: Any) -> Any:
    """The thread's error number, by the address of the function that knows where it is."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(I32.as_pointer(), [])
        place = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return builder.zext(builder.load(place), I64)

    return types.int64(types.int64), codegen


@njit
def _read(pread, error, file, to, room, offset, needed, block):
    """Read until ``needed`` of ``room`` bytes are there. Returns them, or what failed.

    A short direct read goes on where the last whole block began, as it must be asked for in whole blocks.
    """
    done = 0
    while done < needed:
        got = _call4(pread, file, to + done, room - done, offset + done)
        if got < 0:
            number = _error(error)
            if number != EINTR:
                return -max(number, 1)
            continue
        after = done + got
        if after < needed:
            after -= after % block
        if after <= done and done + got < needed:
            return SHORT
        done = after
    return done


@njit
def _copy(to, at, count):
    """Copy bytes."""
    target, source = carray(bytes_at(to), count), carray(bytes_at(at), count)
    for i in range(count):
        target[i] = source[i]


@njit
def _item(item, pread, error, scratch, block, inside):
    """Run one item; returns what becomes its result."""
    file, offset, room, needed = peek(item + FILE), peek(item + OFFSET), peek(item + ROOM), peek(item + NEEDED)
    skip, wanted, to = peek(item + SKIP), peek(item + WANTED), peek(item + TO)
    if inside:
        got = _read(pread, error, file, to - skip, room, offset, needed, block)
        return wanted if got >= 0 else got
    copied = 0
    while copied < wanted:
        piece = min(SCRATCH, room)
        got = _read(pread, error, file, scratch, piece, offset, min(needed, piece), block)
        if got < 0:
            return got
        part = min(wanted - copied, piece - skip)
        _copy(to + copied, scratch + skip, part)
        copied += part
        offset, room, needed, skip = offset + piece, room - piece, needed - piece, 0
    return wanted


def _mark() -> str:
    """Changes whenever this text does; see `strata.experts.kernels.fingerprint`."""
    return fingerprint() + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


@cache
def runner() -> Any:
    """``run(batch, ways, pread, error, scratch)``: take items until none is left; returns how many were taken.

    ``ways`` is the address of the items' blocks, int64 [count], negative where a read is in place.
    """
    mark = _mark()

    def run(batch, ways, pread, error, scratch):
        if len(mark) == 0:
            return -1
        taken, count, items = 0, peek(batch + COUNT), peek(batch + ITEMS)
        while True:
            i = add(batch + NEXT, 1)
            if i >= count:
                return taken
            taken += 1
            item, way = items + i * ITEM, peek(ways + 8 * i)
            if load(batch + STOP) == 0:
                poke(item + RESULT, _item(item, pread, error, scratch, abs(way), way < 0))

    return compiled(run, "int64(int64, int64, int64, int64, int64)")


@cache
def system() -> tuple[int, int]:
    """Addresses of ``pread`` and of the function that knows the error number's place.

    Raises:
        StrataError: the system's library has no such functions.
    """
    library = ctypes.CDLL(None)
    for name in ("__errno_location", "__error", "__errno"):
        place = getattr(library, name, None)
        if place is not None:
            return _address(getattr(library, "pread64", None) or library.pread), _address(place)
    raise StrataError("reading by threads needs a system with pread and errno, such as Linux")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def aligned(nbytes: int, to: int) -> np.ndarray:
    """uint8 [nbytes] whose address is a multiple of ``to``; keeps what it lies in."""
    whole = np.empty(nbytes + to, np.uint8)
    first = -whole.ctypes.data % to
    return whole[first : first + nbytes]
