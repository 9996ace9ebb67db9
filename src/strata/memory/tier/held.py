"""Which experts memory holds, and which one goes when another has to come: a pure state machine.

A visit raises an expert's score, and scores of old visits fade: after `half_life` passes a visit counts half. With the
half-life small that is "least recently used", with it large "least often used". Kept is the logarithm of the score at
time zero, so that fading needs no work: a visit at time t adds 2 ** (t / half_life) to the score, and whoever is not
visited keeps the number he has. Experts that are not held keep theirs, too.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strata.memory.errors import StorageError

HALF_LIFE = 256.0
"""Passes after which a visit counts half."""

I64 = NDArray[np.int64]


class Held:
    """Slots of several sizes, each of which holds one expert of a layer of its size, or none.

    A slot is free, coming (its expert is being read), or ready. Ready ones may be pinned, as often as they are in use;
    pinned and coming ones are never taken away. Nor are those that are shown: somebody who cannot be asked, such as a
    GPU in the middle of a window, may read them at any time until the next `show`.

    Args:
        classes: of each layer: its slots' size.
        experts: of each layer.
        slots: of each class.
        half_life: in passes.

    Attributes:
        slot_of: int32 [L, E]; -1 for an expert that has no slot.
        twice: bool [L, E], whoever has a copy elsewhere: the first to go, and never shown.
    """

    def __init__(
        self, classes: Sequence[int], experts: int, slots: Sequence[int], half_life: float = HALF_LIFE
    ) -> None:
        layers = len(classes)
        if not layers or min(slots) < 1 or not set(classes) <= set(range(len(slots))):
            raise StorageError(f"layers of classes {list(classes)} need at least one slot each, not {list(slots)}")
        self._class = tuple(classes)
        self._experts = experts
        self._half_life = half_life
        self._now = 0.0
        self.slot_of = np.full((layers, experts), -1, np.int32)
        self.twice = np.zeros((layers, experts), np.bool_)
        self._score = np.full((layers, experts), -np.inf)
        self._owner = [np.full(count, -1, np.int64) for count in slots]
        self._pins = [np.zeros(count, np.int64) for count in slots]
        self._ready = [np.zeros(count, np.bool_) for count in slots]
        self._shown = [np.zeros(count, np.bool_) for count in slots]
        self._free = [list(range(count - 1, -1, -1)) for count in slots]

    def begin(self) -> None:
        """A pass begins: time goes on."""
        self._now += 1.0

    def seen(self, layer: int | I64, experts: I64) -> None:
        """Different experts of a layer, or of one layer each, are visited."""
        self._score[layer, experts] = np.logaddexp2(self._score[layer, experts], self._now / self._half_life)

    def holds(self, layer: int, experts: I64) -> NDArray[np.bool_]:
        """Which of them are ready."""
        slots = self.slot_of[layer, experts]
        found: NDArray[np.bool_] = (slots >= 0) & self._ready[self._class[layer]][slots]
        return found

    def pin(self, layer: int, experts: I64) -> None:
        """They are in use until they are released; all must be ready."""
        assert self.holds(layer, experts).all()
        self._pins[self._class[layer]][self.slot_of[layer, experts]] += 1

    def release(self, layer: int, experts: I64) -> None:
        """Undo one `pin`, or the one that came with `claim`."""
        kind = self._class[layer]
        slots = self.slot_of[layer, experts]
        assert (self._pins[kind][slots] > 0).all()
        self._pins[kind][slots] -= 1

    def claim(
        self, layer: int, experts: I64, *, force: bool = True
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Give slots to experts that have none: free ones first, then those of the lowest scores.

        They are coming, and pinned once, from now on; what was there is gone at once.

        Args:
            layer: of all.
            experts: in the order in which they are wanted.
            force: take slots from experts of higher scores, too. Without it a scan through many experts, each visited
                once, goes through few slots and leaves what is visited often.

        Returns:
            (expert, slot) of as many as there were slots for, and (layer, expert) of those that had to go.
        """
        kind, out = self._class[layer], list[tuple[int, int]]()
        slots = [self._free[kind].pop() for _ in range(min(len(experts), len(self._free[kind])))]
        if len(slots) < len(experts):
            rest = experts[len(slots) :]
            evicted = self._evict(kind, len(rest), None if force else self._score[layer, rest])
            out = [divmod(int(self._owner[kind][slot]), self._experts) for slot in evicted]
            for slot in evicted:
                self._forget(kind, slot)
            slots += evicted
        given = [(int(expert), slot) for expert, slot in zip(experts, slots, strict=False)]
        for expert, slot in given:
            assert self.slot_of[layer, expert] < 0
            self.slot_of[layer, expert] = slot
            self._owner[kind][slot] = layer * self._experts + expert
            self._pins[kind][slot] = 1
        return given, out

    def landed(self, layer: int, experts: I64) -> None:
        """They have been read: ready."""
        self._ready[self._class[layer]][self.slot_of[layer, experts]] = True

    def failed(self, layer: int, experts: I64) -> None:
        """They have not been read: their slots are free."""
        kind = self._class[layer]
        for expert in experts.tolist():
            slot = int(self.slot_of[layer, expert])
            assert not self._ready[kind][slot]
            self._forget(kind, slot)
            self._free[kind].append(slot)

    def show(self, least: Sequence[int]) -> bool:
        """Choose anew who is shown: of each class those of the highest scores, but for some slots.

        Whoever was shown before and is not now can be taken away from now on; nobody may still be reading it.

        Args:
            least: slots of each class that are not shown, at least: those that can be had for others.

        Returns:
            Whether anything is different now.
        """
        changed = False
        for kind, count in enumerate(least):
            ready = np.flatnonzero(self._ready[kind])
            owners = self._owner[kind][ready]
            only = ~self.twice.reshape(-1)[owners]
            ready, owners = ready[only], owners[only]
            most = max(0, self.slots(kind) - count)
            if len(ready) > most:
                ready = ready[np.argpartition(-self._score.reshape(-1)[owners], most)[:most]]
            now = np.zeros(self.slots(kind), np.bool_)
            now[ready] = True
            changed |= not np.array_equal(now, self._shown[kind])
            self._shown[kind] = now
        return changed

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Bool [L, E]: who may be read at any time."""
        found = np.zeros(self.slot_of.shape, np.bool_)
        for kind, shown in enumerate(self._shown):
            found.reshape(-1)[self._owner[kind][shown]] = True
        return found

    def slots(self, kind: int) -> int:
        """How many a class has."""
        return len(self._owner[kind])

    @property
    def free(self) -> list[int]:
        """Slots of each class that hold nobody."""
        return [len(free) for free in self._free]

    def used(self, kind: int) -> int:
        """Slots of a class that are in use or coming and are not shown."""
        return int(((self._pins[kind] > 0) & ~self._shown[kind]).sum())

    @property
    def held(self) -> int:
        """Experts that are ready."""
        return sum(int(ready.sum()) for ready in self._ready)

    @property
    def pinned(self) -> int:
        """Slots that are in use or coming."""
        return sum(int((pins > 0).sum()) for pins in self._pins)

    def _evict(self, kind: int, count: int, most: NDArray[np.float64] | None) -> list[int]:
        """Slots of the lowest scores, of equal ones the first; no more than `most` says of each who wants one."""
        open_ = np.flatnonzero(self._ready[kind] & (self._pins[kind] == 0) & ~self._shown[kind])
        owners = self._owner[kind][open_]
        scores, twice = self._score.reshape(-1)[owners], self.twice.reshape(-1)[owners]
        order = np.lexsort((scores, ~twice))[:count]
        if most is not None:
            above = np.flatnonzero(~twice[order] & (scores[order] > most[: len(order)]))
            order = order[: above[0]] if len(above) else order
        chosen: list[int] = open_[order].tolist()
        return chosen

    def _forget(self, kind: int, slot: int) -> None:
        layer, expert = divmod(int(self._owner[kind][slot]), self._experts)
        self.slot_of[layer, expert] = -1
        self._owner[kind][slot] = -1
        self._pins[kind][slot] = 0
        self._ready[kind][slot] = False
