"""Experts of which memory holds a part: addresses for compiled code, and reads of what is missing."""

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import HEADROOM, Filling
from strata.memory.arena.shape import Expert
from strata.memory.errors import StorageError
from strata.memory.reads import Readers, Ticket
from strata.memory.tier.held import HALF_LIFE, Held
from strata.memory.tier.room import Room

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
        self._readers = readers
        self._room = Room(layers, nbytes, shares=shares, least=least, half_life=half_life)
        self.stats = TierStats()

    @property
    def held(self) -> Held:
        """Which experts are here."""
        return self._room.held

    @property
    def experts(self) -> int:
        """Of a layer."""
        return self._room.experts

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return len(self._room.region)

    @property
    def slots(self) -> int:
        """Experts that can be here at once."""
        return self._room.slots

    @property
    def end(self) -> int:
        """Address behind the last byte that may be read."""
        return self._room.region.address + len(self._room.region)

    def addresses(self, layer: int) -> I64:
        """Where the parts of a layer's experts are now: int64 [parts, E], a view that follows."""
        found: I64 = self._room.addresses[layer].T
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
        return self._room.fill(
            self._room.first_ones(), self._readers, on_progress=on_progress, stop=stop, available=available,
            headroom=headroom,
        )  # fmt: skip

    def close(self) -> None:
        """Give the memory back. Nobody may be reading experts."""
        self._room.close()

    def _ask(self, layer: int, experts: I64, force: bool) -> tuple[Ticket, I64] | None:
        """Begin to read some; None if no slot can be had."""
        given = self._room.claim(layer, experts, force=force)
        if not given:
            return None
        items = [item for expert, slot in given for item in self._room.items(layer, expert, slot)]
        return self._readers.submit(items, self._room.region), np.array([expert for expert, _ in given], np.int64)

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
        self._room.land(layer, experts)
        return experts
