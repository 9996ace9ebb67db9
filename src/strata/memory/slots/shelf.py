"""The slots of one size class: what lies in each, what is being copied into it, and which are empty."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOBODY = -1


class Shelf:
    """Slots 0 to `count` - 1, for experts of equal bytes. A key is layer x E + expert.

    A slot of ours is empty, or holds a landed expert, or is being copied into. A slot that was given back and is taken
    again goes on with its generation, so that nothing that was known of its old contents fits the new ones.

    Attributes:
        count: slots that are ours.
        owner: int64 [slots ever or more]: key of the landed expert, -1 without one.
        coming: int64 [slots ever or more]: key of the expert that is being copied in, -1 without one; of a slot that is
            lent a number that no expert has.
        generation: int64 [slots ever or more]: copies that were ever begun.
        landed: slots with a landed expert.
        empties: slots that are empty.
    """

    def __init__(self) -> None:
        """No slots at all; `use` says where they are kept, and `grow` how many there are."""
        self.count = self.landed = self.empties = 0

    def use(self, owner: "NDArray[np.int64]", coming: "NDArray[np.int64]", generation: "NDArray[np.int64]") -> None:
        """Keep what is known of slots in these arrays from now on; they hold it already."""
        self.owner, self.coming, self.generation = owner, coming, generation

    def vacate(self, slot: int) -> int:
        """The landed expert of a slot lies there no longer, and the slot is empty; says who it was."""
        key = int(self.owner[slot])
        self.owner[slot] = NOBODY
        self.landed -= 1
        self.empties += 1
        return key

    def begin(self, slot: int, key: int) -> None:
        """A copy into an empty slot begins."""
        self.empties -= 1
        self.coming[slot] = key
        self.generation[slot] += 1

    def lend(self, slot: int, mark: int) -> int:
        """A slot that nothing is copied into is somebody else's for a while; says who lay there."""
        key = self.vacate(slot) if self.owner[slot] != NOBODY else NOBODY
        self.empties -= 1
        self.coming[slot] = mark
        return key

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
            self.empties += 1
        return True

    def grow(self, count: int) -> list[int]:
        """Have `count` slots, no fewer than now; says which are new. One that still waits for its copy just stays."""
        new = [slot for slot in range(self.count, count) if self.coming[slot] == NOBODY]
        self.empties += len(new)
        self.count = count
        return new

    def shrink(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Have `count` slots, no more than now: slots given back, slots that wait for a copy, keys that are lost."""
        leaving = range(count, self.count)
        waiting = [slot for slot in leaving if self.coming[slot] != NOBODY]
        lost = [self.vacate(slot) for slot in leaving if self.owner[slot] != NOBODY]
        given = [slot for slot in leaving if self.coming[slot] == NOBODY]
        self.empties -= len(given)
        self.count = count
        return given, waiting, lost
