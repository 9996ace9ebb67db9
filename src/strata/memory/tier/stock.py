"""Experts of which RAM holds a part, beside a GPU that reads some of them without asking.

A window on a GPU begins with a table that says where experts lie, and reads what it likes of these until it is over. So
who is in that table stays, however much is read meanwhile for the host's half: that comes into *landing* slots, which
no table shows. Between windows the table is made anew, from whoever is worth most by then.

Where everybody is used:

| by | how long | what keeps it |
|---|---|---|
| the device's half of a window | until the next `begin` | it is shown |
| the host's half | while `visit` says so | a pin |
| copies on their way to the device | until their event, `release` | a pin, by `take` or `hold` |
| a read ahead | until it is taken, or `unbook` | a pin: booked |
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from threading import Event

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import Filling
from strata.memory.arena.region import Region
from strata.memory.arena.shape import Expert
from strata.memory.errors import StorageError
from strata.memory.reads import Readers
from strata.memory.tier.arriving import PATIENCE, Arriving
from strata.memory.tier.held import HALF_LIFE
from strata.memory.tier.room import Pairs, Room
from strata.memory.tier.tier import TierStats

LANDING = 96
"""Slots of a size that no table shows, at least, if there are four times as many: what a window's layer may lack."""

SHARE = 16
"""Of so many slots one lands, where that is more."""

I64 = NDArray[np.int64]


class Stock:
    """Slots for experts of all layers, as many as fit into a number of bytes.

    One thread may be in `visit` while others begin reads or end their use; all else is between windows.

    Args:
        layers: where each layer's experts lie in the file.
        readers: who reads them.
        nbytes: of memory for slots.
        shares: see `strata.memory.tier.room.Room`.
        least: experts that must fit, of each size.
        landing: slots of each size that are never shown; None for what suits their number.
        patience: seconds.
        half_life: of `strata.memory.tier.held.Held`.

    Attributes:
        landing: slots of each size that are not shown.
        stats: what was met so far, by whomever.
        missed: experts that the host's half had to wait for.
        slept: seconds that it did.

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
        landing: int | None = None,
        patience: float = PATIENCE,
        half_life: float = HALF_LIFE,
    ) -> None:
        self._room = room = Room(layers, nbytes, shares=shares, least=least, half_life=half_life, together=True)
        self._readers = readers
        every = [room.classes.count(kind) * room.experts for kind in range(len(room.counts))]
        self.landing = [
            0 if count == full else _landing(count) if landing is None else min(landing, count)
            for count, full in zip(room.counts, every, strict=True)
        ]
        shape = room.held.slot_of.shape
        self._lock = threading.RLock()
        self._coming = Arriving(room, readers, patience)
        self._booked = np.zeros(shape, np.bool_)
        self._counted = np.zeros(shape, np.bool_)
        self._shown = np.zeros(shape, np.bool_)
        self._changed = True
        self.stats = TierStats()
        self.missed, self.slept = 0, 0.0

    @property
    def region(self) -> Region:
        """The memory."""
        return self._room.region

    @property
    def addresses(self) -> I64:
        """Where parts are now: int64 [L, E, parts], always up to date."""
        return self._room.addresses

    @property
    def nobody(self) -> int:
        """Address of whoever is not here: bytes that are all ones."""
        return self._room.nobody

    @property
    def slots(self) -> int:
        """Experts that can be here at once."""
        return self._room.slots

    @property
    def counts(self) -> tuple[int, ...]:
        """Slots of each size."""
        return tuple(self._room.counts)

    @property
    def classes(self) -> tuple[int, ...]:
        """Size of each layer's slots, as a number."""
        return tuple(self._room.classes)

    @property
    def held(self) -> int:
        """Experts that are here."""
        return self._room.held.held

    @property
    def layers(self) -> list[Expert]:
        """Where experts lie in the file."""
        return [self._room.where(layer) for layer in range(len(self._shown))]

    def here(self, layer: int) -> NDArray[np.bool_]:
        """Which of a layer's experts are here: bool [E]."""
        with self._lock:
            self._sweep()
            return self._room.held.holds(layer, np.arange(self._room.experts))

    # Between windows.

    def begin(self, elsewhere: NDArray[np.bool_]) -> bool:
        """A pass is about to begin; none runs that reads who was shown.

        Args:
            elsewhere: bool [L, E], who lies on the device: the first to go from here.

        Returns:
            Whether other experts are shown than before, see `places`.
        """
        held = self._room.held
        with self._lock:
            self._sweep()
            if not np.array_equal(held.twice, elsewhere):
                held.twice[:] = elsewhere
                self._changed = True
            if not self._changed or not held.show(self.landing):
                self._changed = False
                return False
            self._changed = False
            self._shown = held.shown
            return True

    def places(self) -> I64:
        """Addresses for a device: int64 [L, E, parts]; nobody's for who is not shown."""
        return np.where(self._shown[:, :, None], self.addresses, self.nobody)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Bool [L, E]: who may be read at any time until the next `begin`."""
        return self._shown

    def seen(self, visits: NDArray[np.integer]) -> None:
        """A window is over.

        Args:
            visits: [n, 2 or more], layer and expert of each that it visited, wherever that was found.
        """
        layers, experts = visits[:, 0].astype(np.int64), visits[:, 1].astype(np.int64)
        with self._lock:
            held = self._room.held
            fresh = ~self._counted[layers, experts]
            held.seen(layers[fresh], experts[fresh])
            held.begin()
            self._counted[:] = False
            self._changed |= bool((~self._shown[layers, experts] & ~held.twice[layers, experts]).any())

    def ask(self, layer: int, experts: I64) -> None:
        """Begin to read some that may be wanted, unless so much is under way that there is no room for what must."""
        kind = self._room.classes[layer]
        with self._lock:
            self._sweep()
            some = self.landing[kind] // 4 - sum(self._room.classes[i] == kind for i, _ in self._coming)
            if some > 0:
                self._coming.ask(layer, experts[:some])

    def hold(self, pairs: Sequence[tuple[int, int]]) -> list[bool]:
        """Pin experts until `release`: those (layer, expert) that are here, as long as windows do not lack their slots.

        Returns:
            Who was pinned.
        """
        held, found, used = self._room.held, list[bool](), dict[int, int]()
        with self._lock:
            self._sweep()
            for layer, expert in pairs:
                kind, one = self._room.classes[layer], np.array([expert])
                landing = self.landing[kind] if not self._shown[layer, expert] else 0
                if landing and kind not in used:
                    used[kind] = held.used(kind)
                found.append(bool(held.holds(layer, one)[0]) and (not landing or used[kind] < landing // 2))
                if found[-1]:
                    held.pin(layer, one)
                    if landing:
                        used[kind] += 1
        return found

    def release(self, layer: int, experts: I64) -> None:
        """Undo `hold` or `take`."""
        with self._lock:
            self._room.held.release(layer, experts)

    # Copies to a device.

    def want(self, layer: int, experts: I64) -> int:
        """Begin to read experts that will be taken soon, and keep them; in the order in which they will be.

        Returns:
            How many of the first of them are here or on their way. There is no slot for the next one yet.
        """
        held = self._room.held
        with self._lock:
            self._sweep()
            new = experts[~self._booked[layer, experts]]
            here = held.holds(layer, new)
            held.pin(layer, new[here])
            self._booked[layer, new[here]] = True
            self.stats.hits += int(here.sum())
            rest = new[~here]
            coming = np.array([(layer, e) in self._coming for e in rest.tolist()], np.bool_)
            self._booked[layer, rest[coming]] = True
            given = self._coming.ask(layer, rest[~coming])
            self._booked[layer, rest[~coming][:given]] = True
            self.stats.misses += given + int(coming.sum())
            absent = np.flatnonzero(~self._booked[layer, experts])
            return int(absent[0]) if len(absent) else len(experts)

    def take(self, layer: int, experts: I64) -> I64:
        """Wait for experts; they stay until `release`.

        Returns:
            Those that are here now: all, or as many as there were slots for; none if all slots are in use.

        Raises:
            StorageError: the disk failed, or does not answer.
        """
        began = time.perf_counter()
        self.want(layer, experts)
        while not len(mine := experts[self._booked[layer, experts]]) and self._coming:
            self._coming.listen()
            self._coming.sleep(layer, experts, began)
            self.want(layer, experts)
        while True:
            with self._lock:
                self._coming.listen()
                self._sweep()
                self._check(layer, mine, began)
                here = self._room.held.holds(layer, mine)
                if here.all():
                    self._booked[layer, mine] = False
                    self.stats.waited += time.perf_counter() - began
                    return mine
                self._coming.ask(layer, mine[~here])
            self._coming.sleep(layer, mine[~here], began)

    def unbook(self) -> None:
        """Nobody will take what was read ahead."""
        with self._lock:
            self._sweep()
            for layer in np.flatnonzero(self._booked.any(axis=1)).tolist():
                booked = np.flatnonzero(self._booked[layer])
                self._room.held.release(layer, booked[self._room.held.holds(layer, booked)])
            self._booked[:] = False

    # The host's half.

    def visit(self, layer: int, wanted: I64, stop: Callable[[], bool] = lambda: False) -> Generator[I64, None, None]:
        """Bring different experts of a layer into memory, group by group.

        All reads are under way before the first group is given: those that are here. A group stays until the next one
        is asked for, or the iterator is closed.

        Args:
            layer: of all.
            wanted: which.
            stop: whether nobody wants them any more.

        Raises:
            StorageError: the disk failed, or does not answer, or nobody wants them.
        """
        held, stats, began = self._room.held, self.stats, time.perf_counter()
        with self._lock:
            self._sweep()
            here = held.holds(layer, wanted)
            group, left = wanted[here], wanted[~here]
            stats.hits += len(group)
            stats.misses += len(left)
            self.missed += len(left)
            held.pin(layer, group)
            held.seen(layer, wanted)
            self._counted[layer, wanted] = True
            self._coming.ask(layer, left)
        try:
            while True:
                if len(group):
                    yield group
                    with self._lock:
                        held.release(layer, group)
                    group = group[:0]
                if not len(left):
                    return
                group, left = self._arrived(layer, left, began, stop)
        finally:
            if len(group):
                with self._lock:
                    held.release(layer, group)

    def _arrived(self, layer: int, left: I64, began: float, stop: Callable[[], bool]) -> tuple[I64, I64]:
        """Wait until some are here, which are pinned then; and those that are not."""
        held, asleep = self._room.held, time.perf_counter()
        while True:
            with self._lock:
                self._coming.listen()
                self._sweep()
                self._coming.check(layer, left, began)
                here = held.holds(layer, left)
                if here.any():
                    held.pin(layer, left[here])
                    self._coming.ask(layer, left[~here])
                    self.stats.waited += time.perf_counter() - asleep
                    self.slept += time.perf_counter() - asleep
                    return left[here], left[~here]
                self._coming.ask(layer, left)
                if not self._coming:
                    raise StorageError(f"no slot for an expert of layer {layer}: all {self.slots} are in use")
            if stop():
                raise StorageError(f"experts of layer {layer} are not wanted any more")
            self._coming.sleep(layer, left, began)

    # Filling and ending.

    def fill(
        self, pairs: Pairs, on_progress: Callable[[Filling], None] | None = None, stop: Event | None = None
    ) -> None:
        """Read experts into empty slots, those named first first, as far as slots go.

        Raises:
            StorageError: the disk failed.
            KeyboardInterrupt: `stop` was set.
        """
        with self._lock:
            self._room.fill(pairs, self._readers, on_progress=on_progress, stop=stop)
            self._changed = True
            self.stats = TierStats()  # of what is met from now on

    def best(self, worth: NDArray[np.floating]) -> list[tuple[int, I64]]:
        """Whom to fill empty slots with.

        Args:
            worth: [L, E]; the largest come first, and of equal ones as many of each layer as of any other.

        Returns:
            Layers and experts that are not here: as many as there are slots that are free, or have somebody who lies
            elsewhere; those who lie elsewhere come last.
        """
        room, found = self._room, dict[int, list[int]]()
        held, classes = room.held, np.array(room.classes)
        absent = held.slot_of < 0
        for kind, free in enumerate(held.free):
            mine = classes == kind
            spare = free + int((held.twice & ~absent)[mine].sum())
            keys = [(held.twice[i, e], -worth[i, e], e, i) for i, e in np.argwhere(absent & mine[:, None]).tolist()]
            only = sum(not key[0] for key in keys)  # a second copy of somebody takes no place of another one's
            for _, _, expert, layer in sorted(keys)[: min(spare, max(only, free))]:
                found.setdefault(layer, []).append(expert)
        return [(layer, np.array(sorted(experts), np.int64)) for layer, experts in sorted(found.items())]

    def close(self) -> None:
        """Begin no more reads, and give memory back when those under way are over. Nobody may be reading experts."""
        self._coming.abandon()
        self._room.close()

    # With the lock.

    def _sweep(self) -> None:
        """What has been read counts from now on."""
        for layer, expert, nbytes in self._coming.sweep():
            self.stats.read += nbytes
            self._changed = True
            if not self._booked[layer, expert]:
                self._room.held.release(layer, np.array([expert]))

    def _check(self, layer: int, experts: I64, began: float) -> None:
        """See `Arriving.check`; whoever failed is not booked any more."""
        try:
            self._coming.check(layer, experts, began)
        except StorageError:
            gone = self._room.held.slot_of[layer, experts] < 0
            self._booked[layer, experts[gone]] = False
            raise


def _landing(slots: int) -> int:
    """Slots that are not shown, of so many."""
    return max(1, slots // SHARE, min(LANDING, slots // 4))
