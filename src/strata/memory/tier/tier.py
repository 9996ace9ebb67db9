"""Experts of which memory holds a part: addresses for compiled code, and reads of what is missing."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import HEADROOM, Filling, fill
from strata.memory.arena.region import Region
from strata.memory.arena.shape import Expert, SlotShape, shape_of
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers, Ticket
from strata.memory.tier.held import HALF_LIFE, Held

GROUP = 32
"""Most experts that are waited for together."""

AHEAD = 3
"""Groups that are read while one is computed."""

I64 = NDArray[np.int64]


@dataclass(slots=True)
class TierStats:
    """What visits met.

    Attributes:
        hits: visited experts that were in memory.
        misses: those that had to be read.
        read: bytes.
        waited: seconds of waiting for them.
    """

    hits: int = 0
    misses: int = 0
    read: int = 0
    waited: float = 0.0


class ExpertTier:
    """Slots for experts of all layers, as many as fit into a number of bytes.

    An expert's address changes when it is read again; an expert that is not here has the address of bytes which are all
    ones: no type's numbers, so whoever read them would find out.

    Args:
        layers: where each layer's experts lie in the file.
        readers: who reads them.
        nbytes: of memory for slots.
        shares: experts to hold of each layer at first, in place of a number of bytes; each size has as many slots as
            its layers' shares come to.
        least: experts that must fit, of each size.
        half_life: of `Held`.

    Attributes:
        stats: what visits met so far.
        held: which experts are here.

    Raises:
        StorageError: fewer than `least` experts of a size fit.
    """

    def __init__(
        self,
        layers: Sequence[Expert],
        readers: Readers,
        nbytes: int = 0,
        *,
        shares: Sequence[int] | None = None,
        least: int = 1,
        half_life: float = HALF_LIFE,
    ) -> None:
        self._layers = tuple(layers)
        self._readers = readers
        self._experts = layers[0][0].experts
        shapes = [shape_of(expert) for expert in layers]
        self._shapes = sorted(set(shapes), key=lambda shape: shape.parts)
        self._class = [self._shapes.index(shape) for shape in shapes]
        ones = -(-max(max(shape.parts) for shape in self._shapes) // 4096) * 4096
        numbers = [self._class.count(kind) * self._experts for kind in range(len(self._shapes))]
        if shares is None:
            counts = shared_out(self._shapes, numbers, nbytes, least, beside=ones)
        else:
            counts = [
                sum(share for share, own in zip(shares, self._class, strict=True) if own == kind)
                for kind in range(len(self._shapes))
            ]
        firsts = np.cumsum([ones, *(n * shape.nbytes for n, shape in zip(counts, self._shapes, strict=True))])
        self._first = firsts[:-1].tolist()
        self._region = Region(int(firsts[-1]))
        self._region.array[:ones] = 0xFF
        self.held = Held(self._class, self._experts, counts, half_life)
        self._addresses = np.full((len(layers), len(layers[0]), self._experts), self._region.address, np.int64)
        self.stats = TierStats()

    @property
    def experts(self) -> int:
        """Of a layer."""
        return self._experts

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return len(self._region)

    @property
    def slots(self) -> int:
        """Experts that can be here at once."""
        return sum(self.held.slots(kind) for kind in range(len(self._shapes)))

    @property
    def end(self) -> int:
        """Address behind the last byte that may be read."""
        return self._region.address + len(self._region)

    def addresses(self, layer: int) -> I64:
        """Where the parts of a layer's experts are now: int64 [parts, E], a view that follows."""
        found: I64 = self._addresses[layer]
        return found

    def visit(self, layer: int, wanted: I64) -> Generator[I64, None, None]:
        """Bring different experts of a layer into memory, group by group.

        Those that are here come first, while others are read. A group stays until the next one is asked for, or the
        iterator is closed.

        Raises:
            StorageError: the disk failed.
        """
        held, stats = self.held, self.stats
        if layer == 0:
            held.begin()  # a pass begins here
        held.seen(layer, wanted)
        here = held.holds(layer, wanted)
        hits, left = wanted[here], wanted[~here]
        stats.hits += len(hits)
        stats.misses += len(left)
        held.pin(layer, hits)
        coming: deque[tuple[Ticket, I64]] = deque()
        group, size = hits, max(1, min(GROUP, len(left) // 4))
        try:
            while True:
                # What is in use cannot give way, so with few slots there may be nothing to ask for yet. One group is
                # always under way; what is worth more than those who come does not give way to a second.
                while len(left) and len(coming) < AHEAD and (asked := self._ask(layer, left[:size], not coming)):
                    coming.append(asked)
                    left = left[len(asked[1]) :]
                if len(group):
                    yield group
                    held.release(layer, group)
                    group = group[:0]
                elif coming:
                    group = self._arrived(layer, *coming.popleft())
                elif len(left):
                    raise StorageError(f"no slot for an expert of layer {layer}: all {self.slots} are in use")
                else:
                    return
        finally:
            if len(group):
                held.release(layer, group)
            for ticket, experts in coming:
                ticket.abandon()
                held.failed(layer, experts)

    def warm(
        self,
        *,
        on_progress: Callable[[Filling], None] | None = None,
        stop: Event | None = None,
        available: Callable[[], int] | None = None,
        headroom: int = HEADROOM,
    ) -> Filling:
        """Read as many experts as there are slots for, of every layer the same number, before anybody wants them.

        Which ones nobody knows yet; they are the first to give way. See `strata.memory.arena.filling.fill` for the
        arguments and for what stops it.
        """
        pairs = self._first_ones()
        items = []
        for layer, experts in pairs:
            given = self._claim(layer, experts, force=True)
            items += [item for expert, slot in given for item in self._items(layer, expert, slot)]
        total = sum(item.nbytes for item in items)
        items.sort(key=lambda item: (str(item.file.path), item.offset))
        try:
            done = fill(self._region, items, self._readers, total=total, on_progress=on_progress, stop=stop,
                        available=available, headroom=headroom)  # fmt: skip
        except BaseException:
            for layer, experts in pairs:
                self.held.failed(layer, experts)
            raise
        for layer, experts in pairs:
            self._land(layer, experts)
            self.held.release(layer, experts)
        return done

    def close(self) -> None:
        """Give the memory back. Nobody may be reading experts."""
        self._region.give_back()

    def _claim(self, layer: int, experts: I64, *, force: bool) -> list[tuple[int, int]]:
        """Slots for experts; whoever had them has no address from now on."""
        given, out = self.held.claim(layer, experts, force=force)
        for gone in out:
            self._addresses[gone[0], :, gone[1]] = self._region.address
        return given

    def _ask(self, layer: int, experts: I64, force: bool) -> tuple[Ticket, I64] | None:
        """Begin to read some; None if no slot can be had."""
        given = self._claim(layer, experts, force=force)
        if not given:
            return None
        items = [item for expert, slot in given for item in self._items(layer, expert, slot)]
        return self._readers.submit(items, self._region), np.array([expert for expert, _ in given], np.int64)

    def _arrived(self, layer: int, ticket: Ticket, experts: I64) -> I64:
        began = time.perf_counter()
        try:
            ticket.wait()
        except BaseException:
            ticket.abandon()
            self.held.failed(layer, experts)
            raise
        self.stats.waited += time.perf_counter() - began
        self.stats.read += ticket.nbytes
        self._land(layer, experts)
        return experts

    def _land(self, layer: int, experts: I64) -> None:
        shape, where = self._shapes[self._class[layer]], self._layers[layer]
        for expert in experts.tolist():
            slot = self._slot(layer, int(self.held.slot_of[layer, expert]))
            self._addresses[layer, :, expert] = shape.places(where, expert, slot)
        self.held.landed(layer, experts)

    def _slot(self, layer: int, number: int) -> int:
        """Address of a slot."""
        kind = self._class[layer]
        return self._region.address + int(self._first[kind]) + number * self._shapes[kind].nbytes

    def _items(self, layer: int, expert: int, number: int) -> Iterator[Item]:
        return self._shapes[self._class[layer]].items(self._layers[layer], expert, self._slot(layer, number))

    def _first_ones(self) -> list[tuple[int, I64]]:
        """Experts to begin with: of each layer of a size as many as its share of the slots."""
        found = []
        for kind in range(len(self._shapes)):
            layers = [i for i, own in enumerate(self._class) if own == kind]
            each, more = divmod(self.held.slots(kind), len(layers))
            for at, layer in enumerate(layers):
                found.append((layer, np.arange(min(self._experts, each + (at < more)), dtype=np.int64)))
        return [(layer, experts) for layer, experts in sorted(found, key=lambda pair: pair[0]) if len(experts)]


def shared_out(
    shapes: Sequence[SlotShape], experts: Sequence[int], nbytes: int, least: int, *, beside: int = 0
) -> list[int]:
    """Slots of each shape: the same share of the experts of each, no more than there are.

    Args:
        shapes: of slots.
        experts: that have each shape.
        nbytes: for all slots together, and what else lies there.
        least: slots of each shape at least, if there are so many experts.
        beside: bytes that are for something else.

    Raises:
        StorageError: so many do not fit; says how many bytes would do.
    """
    nbytes -= beside
    wanted = sum(shape.nbytes * count for shape, count in zip(shapes, experts, strict=True))
    counts = [min(count, max(min(least, count), count * max(nbytes, 0) // wanted)) for count in experts]
    needed = sum(shape.nbytes * min(least, count) for shape, count in zip(shapes, experts, strict=True))
    if needed > nbytes:
        raise StorageError(f"{nbytes + beside} bytes are too few for experts; at least {needed + beside} are needed")
    # A size that got its least takes it from the largest.
    while sum(shape.nbytes * count for shape, count in zip(shapes, counts, strict=True)) > nbytes:
        slack = [
            shape.nbytes * (count - min(least, full))
            for shape, count, full in zip(shapes, counts, experts, strict=True)
        ]
        counts[slack.index(max(slack))] -= 1
    return counts
