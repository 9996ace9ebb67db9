"""All experts in one region, each a run of bytes at a place of its own; those the card holds may be given back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from threading import Event

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import HEADROOM, Filling, fill
from strata.memory.arena.region import HUGE, Region
from strata.memory.arena.shape import Expert, shape_of
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers


class Arena:
    """Memory for every expert of every layer.

    What an expert's bytes mean is nobody's business here: their number follows from `sizes`, and either the file's
    parts are read into them (`fill`), or whoever knows another layout writes them (`view`).

    *The complement.* An expert that the card holds need not be in memory a second time: `drop` gives its pages back,
    `take` reads it from the file again, which the card would rather not wait for: an expert that is evicted is missed
    until it has been read (`present` says which are here). So it is worth it where memory is short, not where it is
    not. Places stay, so addresses never change.

    Args:
        layers: where each layer's experts lie in the file.
        readers: who reads them.
        sizes: bytes of an expert's slot by layer, multiples of a page; None for the file's parts.
        huge: use huge pages; the complement splits them.

    Attributes:
        region: the memory.
        first: int64 [L]: where each layer's experts begin; a layer starts at a huge page.
        each: int64 [L]: bytes of a layer's slots.
        present: bool [L, E]: which experts are here.
    """

    def __init__(
        self, layers: Sequence[Expert], readers: Readers, *, sizes: Sequence[int] | None = None, huge: bool = True
    ) -> None:
        self._layers = tuple(layers)
        self._readers = readers
        self._shapes = [shape_of(expert) for expert in layers]
        counts = {stack.experts for expert in layers for stack in expert}
        if len(counts) != 1:
            raise StorageError(f"layers have different numbers of experts: {sorted(counts)}")
        self.experts = counts.pop()
        self._own = sizes is None
        self.each = np.array([shape.nbytes for shape in self._shapes] if sizes is None else sizes, np.int64)
        rooms = -(-self.each * self.experts // HUGE) * HUGE
        self.first = np.concatenate([np.zeros(1, np.int64), np.cumsum(rooms)[:-1]])
        self.region = Region(int(rooms.sum()), huge=huge)
        self.present = np.zeros((len(self._layers), self.experts), np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes of all experts."""
        return int((self.each * self.experts).sum())

    @property
    def slices(self) -> list[tuple[int, int]]:
        """First byte and number of bytes of every layer: what is locked, or registered, on its own."""
        return [(int(first), int(each) * self.experts) for first, each in zip(self.first, self.each, strict=True)]

    def place(self, layer: int, expert: int) -> int:
        """Where an expert's slot begins in the region."""
        return int(self.first[layer] + expert * self.each[layer])

    def parts(self, layer: int, expert: int) -> list[int]:
        """Addresses of the parts that were read from the file."""
        assert self._own, "another layout has parts of its own"
        where = self._layers[layer]
        return self._shapes[layer].places(where, expert, self.region.address + self.place(layer, expert))

    def view(self, layer: int, expert: int) -> NDArray[np.uint8]:
        """An expert's slot."""
        at = self.place(layer, expert)
        return self.region.array[at : at + int(self.each[layer])]

    def fill(
        self,
        wanted: Iterable[tuple[int, int]] | None = None,
        *,
        on_progress: Callable[[Filling], None] | None = None,
        stop: Event | None = None,
        available: Callable[[], int] | None = None,
        headroom: int = HEADROOM,
    ) -> Filling:
        """Read experts from the file: all, or some (layer, expert). See `strata.memory.arena.filling.fill`."""
        pairs = self._all() if wanted is None else list(wanted)
        total = sum(sum(self._shapes[layer].parts) for layer, _ in pairs)
        try:
            done = fill(
                self.region, self._items(pairs), self._readers, total=total, on_progress=on_progress, stop=stop,
                available=available, headroom=headroom,
            )  # fmt: skip
        except BaseException:
            self.present[:] = False
            raise
        for pair in pairs:
            self.present[pair] = True
        return done

    def drop(self, layer: int, expert: int) -> int:
        """Give an expert's pages back; returns how many bytes. Nobody may be reading it."""
        self.present[layer, expert] = False
        at = self.place(layer, expert)
        return self.region.give_back(at, at + int(self.each[layer]))

    def take(self, layer: int, expert: int) -> None:
        """Read an expert that was dropped.

        Raises:
            StorageError: the disk failed; the expert is not here.
        """
        self._readers.submit(list(self._items([(layer, expert)])), self.region).wait()
        self.present[layer, expert] = True

    def close(self) -> None:
        """Give all memory back; views read zeros from now on."""
        self.present[:] = False
        self.region.give_back()

    def _all(self) -> list[tuple[int, int]]:
        return [(layer, expert) for layer in range(len(self._layers)) for expert in range(self.experts)]

    def _items(self, pairs: Iterable[tuple[int, int]]) -> Iterator[Item]:
        if not self._own:
            raise StorageError("these slots have another layout than the file; whoever knows it fills them")
        for layer, group in groupby(pairs, key=lambda pair: pair[0]):
            shape, where = self._shapes[layer], self._layers[layer]
            items = [
                item
                for _, expert in group
                for item in shape.items(where, expert, self.region.address + self.place(layer, expert))
            ]
            # In the order of the file: one matrix of all experts after the other.
            yield from sorted(items, key=lambda item: (str(item.file.path), item.offset))
