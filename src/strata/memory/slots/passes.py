"""The two passes that a window costs the host, compiled: counting its visits, and pairing newcomers with slots.

Bytes: a window of 48 x 30 visits touches 23 KB of visits and as much of each table; a class of 8,000 slots is one pass
over 64 KB of owners and their counts. Both stay in a second-level cache.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

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


def _count(visits, layers, experts, quick, slow, quick_weight, slow_weight, slot_of, stamps, stamp, missed, behind):
    """Count a window's visits and append its misses, each once between two calls of `moves`.

    Args:
        visits: int64 [n, 2 or more], layer and expert.
        layers: L.
        experts: E.
        quick: float64 [L x E].
        slow: float64 [L x E].
        quick_weight: what a visit adds to `quick`.
        slow_weight: and to `slow`.
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
        key = visits[row, 0] * experts + visits[row, 1]
        quick[key] += quick_weight
        slow[key] += slow_weight
        if slot_of[key] >= 0:
            hits += 1
        elif stamps[key] != stamp:
            stamps[key] = stamp
            missed[behind] = key
            behind += 1
    return hits, behind


def _pair(
    keys, class_of, class_, slot_of, arriving, busy, counts, owner, empty, worth, margin, most, found, out, begin
):
    """Pair the best newcomers of a class with its slots: empty ones first, then those whose experts count least.

    Args:
        keys: int64 [n], candidates; of equal ones the first goes first.
        class_of: int16 [L x E].
        class_: whose slots they are.
        slot_of: int32 [L x E].
        arriving: bool [L x E].
        busy: bool [L x E] of experts that stay, or [0].
        counts: quick, slow: float64 [2, L x E], already in visits but for their weights; see `scale`.
        owner: int64 [slots], key or -1.
        empty: int64 [m], empty slots in the order in which they are filled.
        worth: visits that being a candidate counts.
        margin: visits a newcomer must be ahead by.
        most: pairs.
        found: (values float64, places int64, keys int64) work space, as long as there are experts or slots.
        out: (keys int64, slots int64, gains float64) of all classes.
        begin: how many of them are there already.

    Returns:
        How many there are then.
    """
    quick, slow, quick_scale, slow_scale = counts
    values, places, chosen = found
    count = 0
    for i in range(len(keys)):
        key = keys[i]
        if class_of[key] == class_ and slot_of[key] < 0 and not arriving[key]:
            values[count] = -(quick[key] * quick_scale + slow[key] * slow_scale + worth)
            chosen[count] = key
            count += 1
    newcomers = _lowest(values, count, most, places)
    out_keys, out_slots, out_gains = out
    for i in range(newcomers):
        out_keys[begin + i] = chosen[places[i]]
        out_gains[begin + i] = -values[places[i]]
    filled = min(newcomers, len(empty))
    for i in range(filled):
        out_slots[begin + i] = empty[i]
    if filled == newcomers:
        return begin + filled
    count = 0
    for slot in range(len(owner)):
        key = owner[slot]
        if key >= 0 and not (len(busy) and busy[key]):
            values[count] = quick[key] * quick_scale + slow[key] * slow_scale
            chosen[count] = slot
            count += 1
    victims = _lowest(values, count, newcomers - filled, places)
    end = begin + filled
    for i in range(victims):
        gain = out_gains[end] - values[places[i]]
        if gain < margin:  # and so is every gain behind it
            break
        out_slots[end] = chosen[places[i]]
        out_gains[end] = gain
        end += 1
    return end


def _best(gains, count, most, values, places):
    """Places of the largest gains, falling; says how many."""
    for i in range(count):
        values[i] = -gains[i]
    return _lowest(values, count, most, places)


VISITS, KEYS, COUNTS, SLOTS = "int64[:, ::1]", "int64[::1]", "float64[::1]", "int32[::1]"
FLAGS, KINDS = "boolean[::1]", "int16[::1]"


@cache
def count() -> Callable[..., Any]:
    """`_count`, compiled."""
    arguments = (VISITS, "int64", "int64", COUNTS, COUNTS, "float64", "float64", SLOTS, KEYS, "int64", KEYS, "int64")
    return compiled(_count, f"UniTuple(int64, 2)({', '.join(arguments)})")


@cache
def pair() -> Callable[..., Any]:
    """`_pair`, compiled."""
    arguments = (
        *(KEYS, KINDS, "int64", SLOTS, FLAGS, FLAGS, f"Tuple(({COUNTS}, {COUNTS}, float64, float64))", KEYS, KEYS),
        *("float64", "float64", "int64", f"Tuple(({COUNTS}, {KEYS}, {KEYS}))", f"Tuple(({KEYS}, {KEYS}, {COUNTS}))"),
        "int64",
    )
    return compiled(_pair, f"int64({', '.join(arguments)})")


@cache
def best() -> Callable[..., Any]:
    """`_best`, compiled."""
    return compiled(_best, f"int64({COUNTS}, int64, int64, {COUNTS}, {KEYS})")
