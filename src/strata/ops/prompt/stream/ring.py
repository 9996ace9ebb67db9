"""A ring of slots on the device through which a pass's missing experts come."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.prompt.stream.lanes import DeviceLanes, InOrder, Lanes
from strata.ops.prompt.stream.schedule import Group, Schedule
from strata.ops.prompt.stream.told import sent

FARTHEST = 1 << 30
"""Slots between the ring and those that it borrows: tables of slots are int32. A slot of 2 MB is never so far away."""

Experts: TypeAlias = Sequence[int] | NDArray[np.integer]

AHEAD = 64
"""Groups behind those that are copied which are asked for: more than a disk reads while one is computed."""


class Layers(Protocol):
    """Where the experts of a model's layers are."""

    @property
    def still(self) -> bool:
        """Whether what is launched now is of no text, so that nothing is to be learned of it."""
        ...

    def begin(self) -> None:
        """A pass begins: which experts have slots does not change until the next one does."""
        ...

    def missing(self, layer: int) -> Experts:
        """Experts of a layer that have no slot on the device, in rising order."""
        ...

    def borrow(self, most: int) -> tuple[Tensor, Sequence[int]] | None:
        """Places beside the ring, until the next pass begins: who lies there is missing from now on.

        Returns:
            ``uint8 [slots, bytes]`` of the largest layers and which of its slots, at most so many and maybe more than
            last time; None where there are none.
        """
        ...

    def layout(self, layer: int) -> SlotLayout:
        """Of a layer's slots."""
        ...

    def ask(self, layer: int, experts: Sequence[int]) -> bool:
        """Read ahead those that are not in RAM; asked in the order in which they will be brought.

        Returns:
            False if there is no room for more now, or nothing to read.
        """
        ...

    def there(self, layer: int, experts: Sequence[int]) -> bool:
        """Whether all are in RAM, so that `bring` waits for nothing."""
        ...

    def bring(self, layer: int, ring: Tensor, experts: Sequence[int], buffers: Sequence[int]) -> None:
        """Launch copies from RAM on the current stream.

        Args:
            layer: whose experts.
            ring: ``uint8 [buffers, layout.nbytes]`` on the device.
            experts: which.
            buffers: where each goes; numbers that lie outside of `ring` are of memory that `borrow` gave.
        """
        ...


class Ring:
    """Buffers on the device and what is under way into them.

    Args:
        memory: uint8, on the device; cut into slots as large as the largest layer's.
        layers: where experts are.
        count: layers.
        experts: of a layer.
        most: experts of a group; 0 for a third of the ring.
        lanes: streams; None for the device's.

    Attributes:
        buffers: of the pass that begins, or goes on.
        most: experts of a group.
    """

    def __init__(
        self, memory: Tensor, layers: Layers, count: int, experts: int, *, most: int = 0, lanes: Lanes | None = None
    ) -> None:
        self._layers, self._count, self._experts = layers, count, experts
        self._device = memory.device
        largest = max(layers.layout(layer).nbytes for layer in range(count))
        self.buffers = len(memory) // largest
        assert self.buffers >= 1, "a ring has room for one expert at least"
        self._memory = self._array = memory[: self.buffers * largest].view(self.buffers, largest)
        self._places = list(range(self.buffers))  # in the array
        own: Lanes = DeviceLanes(self._device) if self._device.type == "cuda" else InOrder()
        self._lanes = own if lanes is None else lanes
        self.most = Schedule(self.buffers, most).most
        self._schedule = Schedule(self.buffers, self.most)
        self._where: dict[int, Tensor] = {}  # which buffer an expert comes to, by layer
        self._landed: dict[int, Any] = {}
        self._free: dict[int, Any] = {}
        self._waiting: list[Group] = []  # their buffers are free, or will be
        self._asked = 0  # groups before this one have been read, or are being read
        self._handed = 0  # and before this one are being copied

    @property
    def still(self) -> bool:
        """See `Layers.still`."""
        return self._layers.still

    def missing(self) -> list[Experts]:
        """Experts that each layer lacks, as a pass begins."""
        self._layers.begin()
        return self._missing()

    def widen(self, buffers: int) -> list[Experts]:
        """For the pass that begins, be as wide as so many buffers, if that can be; says who is missing then.

        Buffers that are borrowed count from the array that they lie in, and so do the ring's own: it may lie anywhere,
        whole slots away.
        """
        found = self._layers.borrow(max(0, buffers - len(self._memory)))
        self._array, self._places = self._memory, list(range(len(self._memory)))
        if found is not None:
            array, slots = found
            first, odd = divmod(self._memory.data_ptr() - array.data_ptr(), array.stride(0))
            if array.stride(0) == self._memory.stride(0) and not odd and abs(first) < FARTHEST:
                self._array, self._places = array, [*range(first, first + len(self._memory)), *slots]
        self.buffers = len(self._places)
        return self._missing()

    def _missing(self) -> list[Experts]:
        return [self._layers.missing(layer) for layer in range(self._count)]

    def begin(self, missing: Sequence[Experts] | None) -> None:
        """A pass begins.

        Args:
            missing: experts that every layer lacks, all of which come; None where each layer says itself what it
                wants, by `want`.
        """
        self._schedule = Schedule(self.buffers, self.most)
        # Whatever passes before have in the buffers is computed before this event.
        self._landed, self._free = {}, {-1: self._lanes.computed()}
        self._where.clear()
        self._waiting, self._asked, self._handed = [], 0, 0
        for layer, experts in enumerate(missing or ()):
            self._schedule.add(layer, _listed(experts))
        self._issue()
        if missing is not None:
            self._place(range(self._count))

    def want(self, layer: int, experts: Sequence[int]) -> None:
        """A layer wants these, some of those that it lacks."""
        self._schedule.add(layer, experts)
        self._issue()
        self._place([layer])

    def slots(self, layer: int) -> Iterator[tuple[Slots, tuple[int, ...]]]:
        """A layer's experts, group by group, when they have come; each until the next is asked for.

        The table of a layer says of all its experts where they come to; of them the group's are there.
        """
        for group in self._schedule.groups(layer):
            self._hand_over(group.number)
            self._lanes.wait(self._landed.pop(group.number))
            yield Slots(self._layers.layout(layer), self._view(layer), self._where[layer]), group.experts
            self._free[group.number] = self._lanes.computed()
            self._schedule.computed(group)
            self._issue()

    def _issue(self) -> None:
        self._waiting += self._schedule.ready()
        while (
            self._asked < self._handed + AHEAD
            and (group := self._schedule.numbered(self._asked))
            and self._layers.ask(group.layer, group.experts)
        ):
            self._asked += 1
        self._hand_over()

    def _hand_over(self, upto: int = -1) -> None:
        """Copies that need not wait for a disk, in order; up to a number all, for that group is computed next."""
        while self._waiting:
            group = self._waiting[0]
            if group.number > upto and not self._layers.there(group.layer, group.experts):
                return
            self._waiting.pop(0)
            self._handed = group.number + 1
            self._asked = max(self._asked, self._handed)
            self._landed[group.number] = self._lanes.copying(partial(self._bring, group), self._free[group.after])

    def _bring(self, group: Group) -> None:
        self._layers.bring(group.layer, self._view(group.layer), group.experts, self._placed(group))

    def _view(self, layer: int) -> Tensor:
        return self._array[:, : self._layers.layout(layer).nbytes]

    def _placed(self, group: Group) -> list[int]:
        return [self._places[buffer] for buffer in group.buffers]

    def _place(self, layers: Sequence[int]) -> None:
        """Send the tables of some layers, all at once."""
        where = np.full((len(layers), self._experts), -1, np.int32)
        for row, layer in zip(where, layers, strict=True):
            for group in self._schedule.groups(layer):
                row[list(group.experts)] = self._placed(group)
        self._where |= dict(zip(layers, sent(where, self._device), strict=True))


def _listed(experts: Experts) -> list[int]:
    return experts.tolist() if isinstance(experts, np.ndarray) else list(experts)
