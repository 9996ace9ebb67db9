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

LIST = 4
"""Numbers of a list are a multiple of it: kernels are compiled for lists at multiples of 16 bytes."""

AHEAD = 64
"""Groups behind those that are copied which are asked for: more than a disk reads while one is computed."""


class Layers(Protocol):
    """Where the experts of a model's layers are."""

    @property
    def still(self) -> bool:
        """Whether what is launched now is of no text, so that nothing is to be learned of it."""
        ...

    @property
    def landing(self) -> int:
        """Places for a group each, between RAM and the ring."""
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
        """Whether all are in RAM, so that `fetch` waits for nothing."""
        ...

    def fetch(self, layer: int, experts: Sequence[int], place: int) -> None:
        """Launch copies from RAM to a landing place, on the current stream.

        Args:
            layer: whose experts.
            experts: which.
            place: number of the landing place.
        """
        ...

    def bring(self, layer: int, ring: Tensor, count: int, place: int, buffers: Tensor) -> None:
        """Launch, on the current stream, what makes slots of what has landed.

        Args:
            layer: whose experts.
            ring: ``uint8 [buffers, layout.nbytes]`` on the device.
            count: experts that were fetched to the place.
            place: number of the landing place.
            buffers: int32 [at least count] on the device, where each goes; numbers that lie outside of `ring` are of
                memory that `borrow` gave.
        """
        ...


class Ring:
    """Buffers on the device and what is under way into them.

    A group goes two ways, one after the other: from RAM to a landing place, and from there to its buffers. The first
    needs a landing place that is free, the second its copy, and buffers that are free; so copies go on while the ring
    is full, as far as there are places. Group i lands at place i % landing.

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
        self._views: dict[int, Tensor] = {}  # of the array, by bytes of a slot
        own: Lanes = DeviceLanes(self._device) if self._device.type == "cuda" else InOrder()
        self._lanes = own if lanes is None else lanes
        self.most = Schedule(self.buffers, most).most
        self._schedule = Schedule(self.buffers, self.most)
        self._where: dict[int, Tensor] = {}  # which buffer an expert comes to, by layer
        self._lists: tuple[int, Tensor] | None = None  # buffers of each group, from a group on
        # Of each landing place: when it is free again. It goes on from pass to pass: one may have been given up.
        self._left: list[Any] = [self._lanes.computed()] * layers.landing
        self._begun: Any = self._left[0]  # before it, memory may have been somebody else's
        self._busy = False
        self._came: dict[int, Any] = {}  # of groups that were fetched and are not made
        self._made: dict[int, Any] = {}
        self._free: dict[int, Any] = {}
        self._waiting: list[Group] = []  # their buffers are free, or will be
        self._asked = 0  # groups before this one have been read, or are being read
        self._fetched = 0  # before this one are being copied
        self._done = 0  # and before this one are being made

    @property
    def still(self) -> bool:
        """See `Layers.still`."""
        return self._layers.still

    @property
    def landing(self) -> int:
        """See `Layers.landing`."""
        return len(self._left)

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
        self._views.clear()
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
        self._begun, self._busy = self._lanes.computed(), True
        self._came, self._made, self._free = {}, {}, {-1: self._begun}
        self._where.clear()
        self._lists = None
        self._waiting, self._asked, self._fetched, self._done = [], 0, 0, 0
        for layer, experts in enumerate(missing or ()):
            self._schedule.add(layer, _listed(experts))
            if not self._fetched:
                self._go_on()  # the link is at work while the rest is thought out
        if missing is not None:
            self._place(range(self._count))
        self._issue()

    def rest(self) -> None:
        """Between passes: what is computed from now on begins after all that is under way, if one was given up."""
        if self._busy:
            for event in (*self._came.values(), *self._left):
                self._lanes.wait(event)
        self._busy = False

    def want(self, layer: int, experts: Sequence[int]) -> None:
        """A layer wants these, some of those that it lacks."""
        assert self._lists is None or self._schedule.done, "its turn comes when those before are computed"
        self._lists = None
        self._schedule.add(layer, experts)
        self._go_on()
        self._place([layer])
        self._issue()

    def slots(self, layer: int) -> Iterator[tuple[Slots, tuple[int, ...]]]:
        """A layer's experts, group by group, when they have come; each until the next is asked for.

        The table of a layer says of all its experts where they come to; of them the group's are there.
        """
        for group in self._schedule.groups(layer):
            self._go_on(group.number)
            self._lanes.wait(self._made.pop(group.number))
            yield Slots(self._layers.layout(layer), self._view(layer), self._where[layer]), group.experts
            self._free[group.number] = self._lanes.computed()
            self._schedule.computed(group)
            self._issue()

    def _issue(self) -> None:
        while (
            self._asked < self._fetched + AHEAD
            and (group := self._schedule.numbered(self._asked))
            and self._layers.ask(group.layer, group.experts)
        ):
            self._asked += 1
        self._go_on()

    def _go_on(self, upto: int = -1) -> None:
        """Hand over all that may be; groups up to a number even if that waits for a disk, for they are computed next.

        An event that was not recorded holds nobody up: whatever has to be waited for has been handed over before.
        """
        self._waiting += self._schedule.ready()
        while self._fetch(upto) or self._make():
            pass

    def _fetch(self, upto: int) -> bool:
        """The next group from RAM to its landing place."""
        group = self._schedule.numbered(self._fetched)
        if group is None or self._fetched >= self._done + len(self._left):
            return False
        if group.number > upto and not self._layers.there(group.layer, group.experts):
            return False
        place = self._fetched % len(self._left)
        self._fetched += 1
        self._asked = max(self._asked, self._fetched)
        body = partial(self._layers.fetch, group.layer, group.experts, place)
        self._came[group.number] = self._lanes.copying(body, self._left[place], self._begun)
        return True

    def _make(self) -> bool:
        """The next group from its landing place to its buffers."""
        if not self._waiting or self._done >= self._fetched or self._lists is None:
            return False
        group, place = self._waiting.pop(0), self._done % len(self._left)
        self._done += 1
        first, lists = self._lists
        body = partial(
            self._layers.bring, group.layer, self._view(group.layer), len(group.experts), place,
            lists[group.number - first],
        )  # fmt: skip
        event = self._lanes.making(body, self._came.pop(group.number), self._free[group.after])
        self._made[group.number] = self._left[place] = event
        return True

    def _view(self, layer: int) -> Tensor:
        nbytes = self._layers.layout(layer).nbytes
        if nbytes not in self._views:
            self._views[nbytes] = self._array[:, :nbytes]
        return self._views[nbytes]

    def _place(self, layers: Sequence[int]) -> None:
        """Send the tables of some layers, one after the other, and the lists of their groups, all at once."""
        where = np.full((len(layers), self._experts), -1, np.int32)
        groups = [group for layer in layers for group in self._schedule.groups(layer)]
        lists = np.zeros((len(groups), -(-self.most // LIST) * LIST), np.int32)
        # All at once, for a pass has some 770 groups of 32 experts, and the link has nothing to do meanwhile.
        sizes = np.array([len(group.experts) for group in groups], np.int64)
        experts = np.array([expert for group in groups for expert in group.experts], np.int64)
        buffers = [buffer for group in groups for buffer in group.buffers]
        placed = np.array(self._places, np.int32)[np.array(buffers, np.int64)]
        rows = np.array([group.layer for group in groups], np.int64) - layers[0]
        of, firsts = np.repeat(np.arange(len(groups)), sizes), np.cumsum(sizes) - sizes
        lists[of, np.arange(len(placed)) - firsts[of]] = placed
        where[rows[of], experts] = placed
        self._where |= dict(zip(layers, sent(where, self._device), strict=True))
        self._lists = (groups[0].number if groups else 0), self._lanes.sent(lists)


def _listed(experts: Experts) -> list[int]:
    return experts.tolist() if isinstance(experts, np.ndarray) else list(experts)
