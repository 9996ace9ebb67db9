"""The two passes that a window costs the host, compiled: counting its visits, and pairing newcomers with slots.

Bytes: a window of 48 x 30 visits touches 23 KB of visits and as much of each table; a class of 8,000 slots is one pass
over 64 KB of owners and their counts. Both stay in a second-level cache.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from strata.experts.kernels.cached import compiled


@njit
def _after(values, a, b):
    """Whether place `a` comes behind place `b` in the order of rising values, of equal ones by place."""
    return values[a] > values[b] or (values[a] == values[b] and a > b)


@njit
def _sink(heap, size, values):
    """Restore a heap, the last place on top, whose top alone is wrong."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _after(values, heap[child + 1], heap[child]):
            child += 1
        if not _after(values, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@njit
def _lowest(values, count, most, out):
    """Places of the lowest of `count` values, rising, into `out`; of equal ones the first. Says how many."""
    size = 0
    for place in range(count):
        if size < most:
            at = size
            out[at] = place
            size += 1
            while at and _after(values, out[at], out[(at - 1) // 2]):
                parent = (at - 1) // 2
                out[at], out[parent] = out[parent], out[at]
                at = parent
        elif values[place] < values[out[0]]:  # a later one of equal value is behind all that are there
            out[0] = place
            _sink(out, size, values)
    for last in range(size - 1, 0, -1):
        out[0], out[last] = out[last], out[0]
        _sink(out, last, values)
    return size


def _count(visits, layers, experts, sums, quick, slow, slot_of, stamps, stamp, missed, behind):
    """Count a window's visits and append its misses, each once between two calls of `moves`.

    Args:
        visits: int32 [n, 2 or more], layer and expert.
        layers: L.
        experts: E.
        sums: float64 [L x E, 2], see `Usage`.
        quick: what a visit adds to the first sum.
        slow: and to the second.
        slot_of: int32 [L x E].
        stamps: int64 [L x E]; equal to `stamp` where an expert is among the missed ones.
        stamp: of this call of `moves` and the next.
        missed: int64 [L x E].
        behind: how many there are by now.

    Returns:
        Hits and how many are missed by now; (-1, row) where a row names an expert that there is not, and nothing has
        changed.
    """
    for row in range(len(visits)):
        if not (0 <= visits[row, 0] < layers and 0 <= visits[row, 1] < experts):
            return -1, row
    hits = 0
    for row in range(len(visits)):
        key = np.int64(visits[row, 0]) * experts + visits[row, 1]
        sums[key, 0] += quick
        sums[key, 1] += slow
        if slot_of[key] >= 0:
            hits += 1
        elif stamps[key] != stamp:
            stamps[key] = stamp
            missed[behind] = key
            behind += 1
    return hits, behind


@njit
def _pair(keys, class_, tables, scales, owner, coming, empties, worth, margin, most, work, out, begin):
    """Pair the best newcomers of a class with its slots: empty ones first, then those whose experts count least."""
    slot_of, class_of, arriving, busy, sums = tables
    quick, slow = scales
    values, places, chosen = work
    out_keys, out_slots, out_gains = out
    # Whoever is not ahead of nothing by the margin is ahead of nobody.
    least = 0.0 if empties else margin
    count = 0
    for i in range(len(keys)):
        key = keys[i]
        if slot_of[key] < 0 and class_of[key] == class_ and not arriving[key]:
            value = sums[key, 0] * quick + sums[key, 1] * slow + worth
            if value >= least:
                values[count] = -value
                chosen[count] = key
                count += 1
    newcomers = _lowest(values, count, most, places)
    if newcomers == 0:
        return begin
    for i in range(newcomers):
        out_keys[begin + i] = chosen[places[i]]
        out_gains[begin + i] = -values[places[i]]
    end, behind, count = begin, begin + newcomers, 0
    check = len(busy) > 0
    for slot in range(len(owner)):
        key = owner[slot]
        if key >= 0:
            if not (check and busy[key]):
                values[count] = sums[key, 0] * quick + sums[key, 1] * slow
                chosen[count] = slot
                count += 1
        elif coming[slot] < 0 and end < behind:
            out_slots[end] = slot
            end += 1
    victims = _lowest(values, count, behind - end, places)
    for i in range(victims):
        gain = out_gains[end] - values[places[i]]
        if gain < margin:  # and so is every gain behind it
            break
        out_slots[end] = chosen[places[i]]
        out_gains[end] = gain
        end += 1
    return end


def _choose(missed, members, borders, slots, fills, tables, scales, books, worth, margin, most, work, out, plan):
    """The best moves of all classes.

    Args:
        missed: int64 [n], candidates of classes that do not fill; of equal ones the first goes first.
        members: int64 [L x E], all experts, class by class: candidates of classes that fill.
        borders: int64 [C + 1], where a class's members begin and end.
        slots: int64 [C, 2], how many there are, and how many of them are empty.
        fills: bool [C].
        tables: slot_of int32, class_of int16, arriving bool, busy bool or [0], sums float64 [., 2], each [L x E].
        scales: see `Usage`.
        books: int64 [3, C, most slots ever]: key of the owner or -1, key that is coming or -1, generation.
        worth: visits that being a candidate counts.
        margin: visits a newcomer must be ahead by.
        most: moves.
        work: values float64, places int64, chosen int64: as long as there are experts or slots.
        out: keys int64, slots int64, gains float64: as long.
        plan: int64 [., 5]: key, slot, key of the owner or -1, generation to be, place in `out`; and as long.

    Returns:
        How many there are in `plan`, best first.
    """
    owner, coming, generation = books[0], books[1], books[2]
    found = 0
    for class_ in range(len(slots)):
        count, empties = slots[class_, 0], slots[class_, 1]
        if count:
            keys = members[borders[class_] : borders[class_ + 1]] if fills[class_] else missed
            mine, theirs = owner[class_, :count], coming[class_, :count]
            more = (mine, theirs, empties, worth, margin, most, work, out, found)
            found = _pair(keys, class_, tables, scales, *more)
    values, places, _ = work
    out_keys, out_slots, out_gains = out
    for i in range(found):
        values[i] = -out_gains[i]
    chosen = _lowest(values, found, most, places)
    for i in range(chosen):
        place = places[i]
        key, slot = out_keys[place], out_slots[place]
        class_ = tables[1][key]
        plan[i, 0], plan[i, 1], plan[i, 2] = key, slot, owner[class_, slot]
        plan[i, 3], plan[i, 4] = generation[class_, slot] + 1, place
    return chosen


VISITS, KEYS, PLAN, BOOKS = "int32[:, ::1]", "int64[::1]", "int64[:, ::1]", "int64[:, :, ::1]"
COUNTS, SUMS = "float64[::1]", "float64[:, ::1]"
SLOTS, KINDS, FLAGS = "int32[::1]", "int16[::1]", "boolean[::1]"


@cache
def count() -> Callable[..., Any]:
    """`_count`, compiled."""
    arguments = (VISITS, "int64", "int64", SUMS, "float64", "float64", SLOTS, KEYS, "int64", KEYS, "int64")
    return compiled(_count, f"UniTuple(int64, 2)({', '.join(arguments)})")


@cache
def choose() -> Callable[..., Any]:
    """`_choose`, compiled."""
    tables = f"Tuple(({SLOTS}, {KINDS}, {FLAGS}, {FLAGS}, {SUMS}))"
    work, out = f"Tuple(({COUNTS}, {KEYS}, {KEYS}))", f"Tuple(({KEYS}, {KEYS}, {COUNTS}))"
    arguments = (
        *(KEYS, KEYS, KEYS, PLAN, FLAGS, tables, "UniTuple(float64, 2)", BOOKS),
        *("float64", "float64", "int64", work, out, PLAN),
    )
    return compiled(_choose, f"int64({', '.join(arguments)})")
