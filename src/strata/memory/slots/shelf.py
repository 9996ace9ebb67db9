"""The slots of one size class: what lies in each, what is being copied into it, and which are empty."""

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
NO_SLOTS = np.empty(0, np.int64)


class Shelf:
    """Slots 0 to `count` - 1, for experts of equal bytes. A key is layer x E + expert.

    A slot of ours is empty, or holds a landed expert, or is being copied into. Arrays only grow: a slot that was given
    back and is taken again goes on with its generation, so that nothing that was known of its old contents fits the
    new ones.

    Attributes:
        count: slots that are ours.
        owner: int64 [slots ever]: key of the landed expert, -1 without one.
        coming: int64 [slots ever]: key of the expert that is being copied in, -1 without one.
        generation: int64 [slots ever]: copies that were ever begun.
        landed: slots with a landed expert.
        empties: slots that are empty.
    """

    def __init__(self, count: int) -> None:
        """All slots are empty."""
        self.count = self.landed = self.empties = 0
        self.owner: NDArray[np.int64] = np.empty(0, np.int64)
        self.coming: NDArray[np.int64] = np.empty(0, np.int64)
        self.generation: NDArray[np.int64] = np.empty(0, np.int64)
        self._empty: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.grow(count)

    def lowest_empty(self, most: int) -> NDArray[np.int64]:
        """int64 [up to most]: empty slots, the lowest first, so that a cache that shrinks loses as little as it can."""
        return np.flatnonzero(self._empty[: self.count])[:most] if self.empties else NO_SLOTS

    def vacate(self, slot: int) -> int:
        """The landed expert of a slot lies there no longer, and the slot is empty; says who it was."""
        key = int(self.owner[slot])
        self.owner[slot] = NOBODY
        self.landed -= 1
        self._mark(slot, empty=True)
        return key

    def begin(self, slot: int, key: int) -> None:
        """A copy into an empty slot begins."""
        self._mark(slot, empty=False)
        self.coming[slot] = key
        self.generation[slot] += 1

    def end(self, slot: int, *, landed: bool) -> bool:
        """The copy into a slot is over, well or not; False if the slot is ours no longer."""
        key = int(self.coming[slot])
        self.coming[slot] = NOBODY
        if slot >= self.count:
            return False
        if landed:
            self.owner[slot] = key
            self.landed += 1
        else:
            self._mark(slot, empty=True)
        return True

    def grow(self, count: int) -> list[int]:
        """Have `count` slots, no fewer than now; says which are new. One that still waits for its copy just stays."""
        more = max(0, count - len(self.owner))
        self.owner = np.append(self.owner, np.full(more, NOBODY))
        self.coming = np.append(self.coming, np.full(more, NOBODY))
        self.generation = np.append(self.generation, np.zeros(more, np.int64))
        self._empty = np.append(self._empty, np.zeros(more, np.bool_))
        new = [slot for slot in range(self.count, count) if self.coming[slot] == NOBODY]
        self._empty[new] = True
        self.empties += len(new)
        self.count = count
        return new

    def shrink(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Have `count` slots, no more than now: slots given back, slots that wait for a copy, keys that are lost."""
        leaving = range(count, self.count)
        waiting = [slot for slot in leaving if self.coming[slot] != NOBODY]
        lost = [self.vacate(slot) for slot in leaving if self.owner[slot] != NOBODY]
        given = [slot for slot in leaving if self.coming[slot] == NOBODY]
        self._empty[given] = False
        self.empties -= len(given)
        self.count = count
        return given, waiting, lost

    def _mark(self, slot: int, *, empty: bool) -> None:
        self.empties += int(empty) - int(self._empty[slot])
        self._empty[slot] = empty
