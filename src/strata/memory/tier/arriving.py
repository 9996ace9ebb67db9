"""Experts that are being read into the slots of a room: asked for, waited for, told why they did not come."""

import threading
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from strata.memory.errors import StorageError
from strata.memory.reads import Readers, Ticket
from strata.memory.tier.room import Room

PATIENCE = 8.0
"""Seconds that somebody waits for experts; less than a device's patience, so that the report says what was not read."""

TICK = 0.05
"""Seconds between two looks whether somebody wants us to stop."""

I64 = NDArray[np.int64]


class Arriving:
    """Reads that are under way. Their slots are pinned once; whoever calls keeps others out meanwhile.

    Args:
        room: with the slots.
        readers: who reads.
        patience: seconds.
    """

    def __init__(self, room: Room, readers: Readers, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._room, self._readers = room, readers
        self._bell = threading.Event()
        self._coming: dict[tuple[int, int], Ticket] = {}
        self._failed: dict[tuple[int, int], tuple[StorageError, float]] = {}

    def __len__(self) -> int:
        return len(self._coming)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Layer and expert of each."""
        return iter(self._coming)

    def ask(self, layer: int, experts: I64) -> int:
        """Begin to read those that are neither here nor on their way, as far as there are slots; how many."""
        held = self._room.held
        given = self._room.claim(layer, experts[held.slot_of[layer, experts] < 0])
        for n, (expert, slot) in enumerate(given):
            items = list(self._room.items(layer, expert, slot))
            try:
                self._coming[layer, expert] = self._readers.submit(items, self._room.region, self._bell)
            except BaseException:
                held.failed(layer, np.array([one for one, _ in given[n:]], np.int64))
                raise
        return len(given)

    def sweep(self) -> list[tuple[int, int, int]]:
        """What has been read is here from now on, still pinned: layer, expert and bytes of each."""
        found = []
        for (layer, expert), ticket in [item for item in self._coming.items() if item[1].done]:
            del self._coming[layer, expert]
            try:
                ticket.wait()
            except StorageError as error:
                self._room.held.failed(layer, np.array([expert]))
                self._failed[layer, expert] = error, ticket.began
                continue
            self._room.land(layer, np.array([expert]))
            found.append((layer, expert, ticket.nbytes))
        return found

    def check(self, layer: int, experts: I64, since: float) -> None:
        """Say what became of reads that somebody waits for since then; those asked for earlier are tried again.

        Raises:
            StorageError: one that was asked for since has failed.
        """
        for expert in experts.tolist():
            error, asked = self._failed.pop((layer, expert), (None, 0.0))
            if error is not None and asked >= since:
                raise error

    def listen(self) -> None:
        """From here on `sleep` ends when something has been read."""
        self._bell.clear()

    def sleep(self, layer: int, left: I64, since: float) -> None:
        """Until something has been read, or for a moment. Others may come in meanwhile.

        Raises:
            StorageError: patience has ended; says what has not come, from where, and what else is under way.
        """
        waited = time.perf_counter() - since
        if waited <= self.patience:
            self._bell.wait(min(TICK, self.patience))
            return
        tickets = list(self._coming.values())
        oldest = time.perf_counter() - min((one.began for one in tickets), default=time.perf_counter())
        stack = self._room.where(layer)[0]
        shown = ", ".join(map(str, left[:12].tolist())) + (" ..." if len(left) > 12 else "")
        raise StorageError(
            f"experts {shown} of layer {layer} have not come from the disk in {waited:.1f} s "
            f"({stack.file.path} at byte {stack.of(int(left[0]))}); {len(tickets)} reads are under way, the oldest for "
            f"{oldest:.1f} s; is the disk still there?"
        )

    def abandon(self) -> None:
        """Begin no more reads, and return when those under way are over."""
        for ticket in self._coming.values():
            ticket.abandon()
