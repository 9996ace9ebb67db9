"""Slots for experts in one run of memory, and where each expert is: what every tier of experts on a disk is made of."""

from collections.abc import Callable, Iterator, Sequence
from threading import Event

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import HEADROOM, Filling, fill
from strata.memory.arena.region import Region
from strata.memory.arena.shape import Expert, SlotShape, shape_of
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers
from strata.memory.tier.held import HALF_LIFE, Held

I64 = NDArray[np.int64]

Pairs = Sequence[tuple[int, I64]]
"""Layers, and experts of each."""


class Room:
    """Memory with as many slots as fit into a number of bytes, all layers of a size together.

    An expert's address changes when it is read again; an expert that is not here has the address of bytes which are all
    ones: no type's numbers, so whoever read them would find out.

    Args:
        layers: where each layer's experts lie in the file.
        nbytes: of memory for slots.
        shares: experts to hold of each layer at first, in place of a number of bytes; each size has as many slots as
            its layers' shares come to.
        least: experts that must fit, of each size.
        half_life: of `Held`.
        together: an expert's parts follow one another in `addresses`; else a part's experts do.

    Attributes:
        region: the memory.
        held: which experts are here.
        addresses: int64 [L, E, parts], where they are.
        classes: size of each layer's slots, as a number.

    Raises:
        StorageError: fewer than `least` experts of a size fit.
    """

    def __init__(
        self,
        layers: Sequence[Expert],
        nbytes: int = 0,
        *,
        shares: Sequence[int] | None = None,
        least: int = 1,
        half_life: float = HALF_LIFE,
        together: bool = False,
    ) -> None:
        self._layers = tuple(layers)
        self.experts = layers[0][0].experts
        shapes = [shape_of(expert) for expert in layers]
        self._shapes = sorted(set(shapes), key=lambda shape: shape.parts)
        self.classes = [self._shapes.index(shape) for shape in shapes]
        ones = -(-max(max(shape.parts) for shape in self._shapes) // 4096) * 4096
        numbers = [self.classes.count(kind) * self.experts for kind in range(len(self._shapes))]
        if shares is None:
            counts = shared_out(self._shapes, numbers, nbytes, least, beside=ones)
        else:
            pairs = list(zip(shares, self.classes, strict=True))
            counts = [sum(share for share, own in pairs if own == kind) for kind in range(len(self._shapes))]
        firsts = np.cumsum([ones, *(n * shape.nbytes for n, shape in zip(counts, self._shapes, strict=True))])
        self._first = firsts[:-1].tolist()
        self.region = Region(int(firsts[-1]))
        self.region.array[:ones] = 0xFF
        self.held = Held(self.classes, self.experts, counts, half_life)
        count, parts = len(layers), len(layers[0])
        if together:
            self.addresses = np.full((count, self.experts, parts), self.nobody, np.int64)
        else:
            self.addresses = np.full((count, parts, self.experts), self.nobody, np.int64).transpose(0, 2, 1)

    @property
    def nobody(self) -> int:
        """Address of the bytes that are all ones."""
        return self.region.address

    @property
    def counts(self) -> list[int]:
        """Slots of each size."""
        return [self.held.slots(kind) for kind in range(len(self._shapes))]

    @property
    def slots(self) -> int:
        """Experts that can be here at once."""
        return sum(self.counts)

    def where(self, layer: int) -> Expert:
        """Where a layer's experts lie in the file."""
        return self._layers[layer]

    def claim(self, layer: int, experts: I64, *, force: bool = True) -> list[tuple[int, int]]:
        """Slots for experts; whoever had them has no address from now on. See `Held.claim`."""
        given, out = self.held.claim(layer, experts, force=force)
        for gone in out:
            self.addresses[gone] = self.nobody
        return given

    def items(self, layer: int, expert: int, number: int) -> Iterator[Item]:
        """The reads that fill a slot."""
        return self._shapes[self.classes[layer]].items(self._layers[layer], expert, self._slot(layer, number))

    def land(self, layer: int, experts: I64) -> None:
        """They have been read."""
        shape, where = self._shapes[self.classes[layer]], self._layers[layer]
        for expert in experts.tolist():
            slot = self._slot(layer, int(self.held.slot_of[layer, expert]))
            self.addresses[layer, expert] = shape.places(where, expert, slot)
        self.held.landed(layer, experts)

    def fill(
        self,
        pairs: Pairs,
        readers: Readers,
        *,
        on_progress: Callable[[Filling], None] | None = None,
        stop: Event | None = None,
        available: Callable[[], int] | None = None,
        headroom: int = HEADROOM,
    ) -> Filling:
        """Read experts for which there are slots. See `strata.memory.arena.filling.fill`; the region is filled whole.

        Args:
            pairs: layers and experts that have no slot yet.
            readers: who reads.
            on_progress: see there, as for the others.
            stop: see there.
            available: see there.
            headroom: see there.
        """
        items = []
        for layer, experts in pairs:
            given = self.claim(layer, experts)
            items += [item for expert, slot in given for item in self.items(layer, expert, slot)]
        total = sum(item.nbytes for item in items)
        items.sort(key=lambda item: (str(item.file.path), item.offset))
        try:
            done = fill(self.region, items, readers, total=total, on_progress=on_progress, stop=stop,
                        available=available, headroom=headroom)  # fmt: skip
        except BaseException:
            for layer, experts in pairs:
                self.held.failed(layer, experts)
            raise
        for layer, experts in pairs:
            self.land(layer, experts)
            self.held.release(layer, experts)
        return done

    def shares(self) -> list[list[int]]:
        """Slots of each size by layer: the same number for each, as far as that goes; by size, then by layer."""
        found = []
        for kind, count in enumerate(self.counts):
            layers = self.classes.count(kind)
            each, more = divmod(count, layers)
            found.append([min(self.experts, each + (at < more)) for at in range(layers)])
        return found

    def first_ones(self) -> list[tuple[int, I64]]:
        """Experts to begin with: of each layer of a size as many as its share of the slots."""
        found = []
        for kind, shares in enumerate(self.shares()):
            layers = [i for i, own in enumerate(self.classes) if own == kind]
            found += [(layer, np.arange(share, dtype=np.int64)) for layer, share in zip(layers, shares, strict=True)]
        return [(layer, experts) for layer, experts in sorted(found, key=lambda pair: pair[0]) if len(experts)]

    def close(self) -> None:
        """Give the memory back. Nobody may be reading experts."""
        self.region.give_back()

    def _slot(self, layer: int, number: int) -> int:
        """Address of a slot."""
        kind = self.classes[layer]
        return self.region.address + int(self._first[kind]) + number * self._shapes[kind].nbytes


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
