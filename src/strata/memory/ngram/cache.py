"""Which rows of a large table are in memory: a bounded cache in sets, of each of which the oldest row goes first.

A row's number says its set; a set has eight places. So nothing is ever moved or searched for, a look-up reads one or
two lines of memory, and bounds cannot be passed. Rows of hashed n-grams are spread evenly over the sets by themselves;
the multiplication spreads those of any other table.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strata.experts.kernels.cached import compiled

WAYS = 8
"""Places of a set."""

I64 = NDArray[np.int64]


@njit
def _set(number, sets):
    """The set of a row: a product's upper bits, so that neighbours are apart."""
    return ((number * 0x1E3779B97F4A7C15) & 0x7FFFFFFFFFFFFFFF) % sets * WAYS


@cache
def _finder() -> Any:
    def find(numbers, keys, used, clock, places):
        sets, found = len(keys) // WAYS, 0
        for i in range(len(numbers)):
            first = _set(numbers[i], sets)
            places[i] = -1
            for way in range(first, first + WAYS):
                if keys[way] == numbers[i]:
                    places[i], used[way] = way, clock + i
                    found += 1
        return found

    return compiled(find, "int64(int64[::1], int64[::1], int64[::1], int64, int64[::1])")


@cache
def _placer() -> Any:
    def place(numbers, keys, used, clock, places):
        sets = len(keys) // WAYS
        for i in range(len(numbers)):
            first = _set(numbers[i], sets)
            oldest = first
            for way in range(first, first + WAYS):
                if keys[way] == numbers[i]:
                    oldest = way
                    break
                if used[way] < used[oldest]:
                    oldest = way
            keys[oldest], used[oldest], places[i] = numbers[i], clock + i, oldest
        return len(numbers)

    return compiled(place, "int64(int64[::1], int64[::1], int64[::1], int64, int64[::1])")


class RowCache:
    """Places of rows. It holds no rows: whoever has them keeps them in an array of as many places.

    Args:
        places: at least one set's worth; rounded down to whole sets.
    """

    def __init__(self, places: int) -> None:
        sets = max(1, places // WAYS)
        self._keys: I64 = np.full(sets * WAYS, -1, np.int64)
        self._used: I64 = np.zeros(sets * WAYS, np.int64)
        self._clock = 1
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, numbers: I64) -> I64:
        """The places of rows, each of which counts as used; -1 for those that are not here."""
        places = np.empty(len(numbers), np.int64)
        found = int(_finder()(numbers, self._keys, self._used, self._clock, places))
        self._clock += len(numbers)
        self.hits += found
        self.misses += len(numbers) - found
        return places

    def place(self, numbers: I64) -> I64:
        """Places for rows from now on, taken from those of their sets that were used longest ago.

        Of rows that meet in one place the last is there.
        """
        places = np.empty(len(numbers), np.int64)
        _placer()(numbers, self._keys, self._used, self._clock, places)
        self._clock += len(numbers)
        return places

    def holds(self) -> dict[int, int]:
        """All rows that are here and their places."""
        return {int(key): place for place, key in enumerate(self._keys) if key >= 0}
