"""Which copies bring some experts, and their way to the driver: compiled, for a pass over a short prompt waits for it.

Of a group of 15 experts there are some 33 copies. To find them takes 9 us, with NumPy 43; to hand them over 4 beside
the driver's own time, one by one through ctypes 24 (one processor of an EPYC, a call that does nothing for the
driver's).
"""

from functools import cache
from typing import Any

from numba import njit

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.memory import call, carray, ints_at, longs_at, poke

SOURCE, AT, WIDTH, ROWS = range(4)
"""Columns of a list of copies: see `strata.ops.tiers.copies.Copies`."""

PARTS = 3


def most(experts: int, cuts: int) -> int:
    """Copies of so many experts: each part its own, and at a cut what is before, what it tears, and what is behind."""
    return PARTS * (experts + 3 * cuts)


@njit
def _add(to, found, source, at, width, rows):
    copy = carray(longs_at(to + 32 * found), 4)
    copy[SOURCE], copy[AT], copy[WIDTH], copy[ROWS] = source, at, width, rows
    return found + 1


@njit
def _next(cuts, many, address):
    """Number of the first cut behind an address."""
    low, high = 0, many
    while low < high:
        middle = (low + high) // 2
        if cuts[middle] > address:
            high = middle
        else:
            low = middle + 1
    return low


@njit
def _parted(to, found, source, at, width, rows, pitch, cuts, many):
    """One run as copies that reach over no cut; returns how many there are with those before."""
    while rows > 0:
        cut = _next(cuts, many, source)
        if cut == many or cuts[cut] >= source + width * rows:
            return _add(to, found, source, at, width, rows)
        whole = (cuts[cut] - source) // width
        if whole > 0:
            found = _add(to, found, source, at, width, whole)
        source, at, rows = source + whole * width, at + whole * pitch, rows - whole
        if cuts[cut] > source:  # it tears a row
            done = 0
            while done < width:
                cut = _next(cuts, many, source + done)
                end = width if cut == many else min(width, cuts[cut] - source)
                found = _add(to, found, source + done, at + done, end - done, 1)
                done = end
            source, at, rows = source + width, at + pitch, rows - 1
    return found


def _lister() -> Any:
    def run(addresses, rows, count, sizes, cuts, many, to):
        where, row = carray(longs_at(addresses), (count, PARTS)), carray(longs_at(rows), count)
        size, cut = carray(longs_at(sizes), PARTS), carray(longs_at(cuts), many)
        together, pitch = True, size[0] + size[1] + size[2]
        for i in range(count):  # whether they lie as they are to land
            first = where[i, 0]
            together = together and where[i, 1] == first + size[0] and where[i, 2] == first + size[0] + size[1]
        found, start = 0, 0
        for part in range(1 if together else PARTS):
            width, first = pitch if together else size[part], 0
            for i in range(1, count + 1):
                if i == count or row[i] != row[i - 1] + 1 or where[i, part] != where[i - 1, part] + width:
                    at = start + row[first] * pitch
                    found = _parted(to, found, where[first, part], at, width, i - first, pitch, cut, many)
                    first = i
            start += width
        return found

    return compiled(run, f"int64({', '.join(['int64'] * 7)})")


@cache
def lister() -> Any:
    """Writes a list of copies, and returns how many.

    ``(addresses int64 [n, 3], rows int64 [n], n, sizes int64 [3], cuts int64 [m], m, to int64 [.., 4])``, all but the
    counts by their addresses.
    """
    return _lister()


def _caller() -> Any:
    def run(function, structure, words, copies, count, target, stream):
        word = carray(ints_at(words), 5)
        for i in range(count):
            copy = carray(longs_at(copies + 32 * i), 4)
            poke(structure + word[0], copy[SOURCE])
            poke(structure + word[1], copy[WIDTH])
            poke(structure + word[2], target + copy[AT])
            poke(structure + word[3], copy[WIDTH])
            poke(structure + word[4], copy[ROWS])
            status = call(function, structure, stream, 0) & 0xFFFFFFFF  # an int of C
            if status != 0:
                return status
        return 0

    return compiled(run, f"int64({', '.join(['int64'] * 7)})")


@cache
def caller() -> Any:
    """Asks the driver for copies.

    ``(function, structure, words int32 [5], copies int64 [n, 4], n, target, stream)``: the function takes the
    structure and the stream; words say where in the structure source, its pitch, target, width and rows are. Returns 0
    or the status of the first that was refused.
    """
    return _caller()
