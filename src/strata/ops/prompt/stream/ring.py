"""A ring of slots on the device through which a pass's missing experts come."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.prompt.stream.lanes import DeviceLanes, InOrder, Lanes
from strata.ops.prompt.stream.schedule import Group, Schedule


class Layers(Protocol):
    """Where the experts of a model's layers are."""

    def begin(self) -> None:
        """A pass begins: which experts have slots does not change until the next one does."""
        ...

    def missing(self, layer: int) -> Sequence[int]:
        """Experts of a layer that have no slot on the device."""
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
            buffers: where each goes.
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
    """

    def __init__(
        self, memory: Tensor, layers: Layers, count: int, experts: int, *, most: int = 0, lanes: Lanes | None = None
    ) -> None:
        self._layers, self._count, self._experts, self._most = layers, count, experts, most
        self._device = memory.device
        largest = max(layers.layout(layer).nbytes for layer in range(count))
        self.buffers = len(memory) // largest
        assert self.buffers >= 1, "a ring has room for one expert at least"
        self._memory = memory[: self.buffers * largest].view(self.buffers, largest)
        own: Lanes = DeviceLanes(self._device) if self._device.type == "cuda" else InOrder()
        self._lanes = own if lanes is None else lanes
        self._schedule = Schedule(self.buffers, most)
        self._landed: dict[int, Any] = {}
        self._free: dict[int, Any] = {}
        self._waiting: list[Group] = []  # their buffers are free, or will be
        self._asked = 0  # groups before this one have been read, or are being read

    def missing(self) -> list[Sequence[int]]:
        """Experts that each layer lacks, as a pass begins."""
        self._layers.begin()
        return [self._layers.missing(layer) for layer in range(self._count)]

    def begin(self, missing: Sequence[Sequence[int]] | None) -> None:
        """A pass begins.

        Args:
            missing: experts that every layer lacks, all of which come; None where each layer says itself what it
                wants, by `want`.
        """
        self._schedule = Schedule(self.buffers, self._most)
        # Whatever passes before have in the buffers is computed before this event.
        self._landed, self._free = {}, {-1: self._lanes.computed()}
        self._waiting, self._asked = [], 0
        for layer, experts in enumerate(missing or ()):
            self._schedule.add(layer, experts)
        self._issue()

    def want(self, layer: int, experts: Sequence[int]) -> None:
        """A layer wants these, some of those that it lacks."""
        self._schedule.add(layer, experts)
        self._issue()

    def slots(self, layer: int) -> Iterator[Slots]:
        """A layer's experts, group by group, when they have come; each until the next is asked for."""
        for group in self._schedule.groups(layer):
            self._hand_over(group.number)
            self._lanes.wait(self._landed.pop(group.number))
            yield self._slots(group)
            self._free[group.number] = self._lanes.computed()
            self._schedule.computed(group)
            self._issue()

    def _issue(self) -> None:
        self._waiting += self._schedule.ready()
        while (group := self._schedule.numbered(self._asked)) and self._layers.ask(group.layer, group.experts):
            self._asked += 1
        self._hand_over()

    def _hand_over(self, upto: int = -1) -> None:
        """Copies that need not wait for a disk, in order; up to a number all, for that group is computed next."""
        while self._waiting:
            group = self._waiting[0]
            if group.number > upto and not self._layers.there(group.layer, group.experts):
                return
            self._waiting.pop(0)
            self._asked = max(self._asked, group.number + 1)
            self._landed[group.number] = self._lanes.copying(partial(self._bring, group), self._free[group.after])

    def _bring(self, group: Group) -> None:
        self._layers.bring(group.layer, self._view(group.layer), group.experts, group.buffers)

    def _view(self, layer: int) -> Tensor:
        return self._memory[:, : self._layers.layout(layer).nbytes]

    def _slots(self, group: Group) -> Slots:
        where = torch.full((self._experts,), -1, dtype=torch.int32)
        where[list(group.experts)] = torch.tensor(group.buffers, dtype=torch.int32)
        if self._device.type == "cuda":
            where = where.pin_memory().to(self._device, non_blocking=True)
        return Slots(self._layers.layout(group.layer), self._view(group.layer), where)
