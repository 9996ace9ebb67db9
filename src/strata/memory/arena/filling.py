"""Filling memory from files: by several threads, with progress, to be stopped at any moment."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Event

from strata.memory.arena.region import Region
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers, Ticket

AHEAD = 3
"""Batches under way: the disk has work while progress is told."""

BATCH = 64 << 20
"""Bytes asked for at once. What is asked for has to be waited for when somebody interrupts."""

HEADROOM = 512 << 20
"""Bytes of memory that are left to the rest of the machine."""


log = logging.getLogger("strata.memory")


@dataclass(frozen=True, slots=True)
class Filling:
    """How far it is.

    Attributes:
        done: bytes that have been read.
        total: bytes to read.
        seconds: since the beginning.
    """

    done: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


def fill(
    region: Region,
    items: Iterable[Item],
    readers: Readers,
    *,
    total: int = 0,
    on_progress: Callable[[Filling], None] | None = None,
    stop: Event | None = None,
    available: Callable[[], int] | None = None,
    headroom: int = HEADROOM,
) -> Filling:
    """Read everything into a region.

    However it ends before its end, by Ctrl-C, by what `on_progress` raises, or for want of memory, nothing is under way
    any more and the region's memory has been given back.

    Args:
        region: where the items lead.
        items: reads, in the order of the file if the disk is to be fast.
        readers: who reads.
        total: bytes there will be, for progress.
        on_progress: called after each batch.
        stop: when it is set, filling ends as if interrupted.
        available: bytes of memory that can still be taken, limits of containers included; asked before each batch, for
            what was free at the beginning others may have taken.
        headroom: bytes that must stay available.

    Returns:
        The end.

    Raises:
        KeyboardInterrupt: somebody interrupted, or `stop` was set.
        StorageError: the disk failed, or memory ran short.
    """
    began, done = time.perf_counter(), 0
    coming: list[Ticket] = []
    batches = _batches(items)
    try:
        while True:
            while len(coming) < AHEAD and (batch := next(batches, None)):
                if available is not None:
                    _check(available(), sum(item.nbytes for item in batch), headroom, done, total)
                coming.append(readers.submit(batch, region))
            if not coming:
                _look(region, done)
                return Filling(done, max(done, total), time.perf_counter() - began)
            coming[0].wait()
            done += coming.pop(0).nbytes
            _go_on(stop)
            if on_progress:
                on_progress(Filling(done, max(done, total), time.perf_counter() - began))
    except BaseException:
        for ticket in coming:
            ticket.abandon()
        region.give_back()
        raise


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += item.nbytes
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _look(region: Region, done: int) -> None:
    """Whether all that was read is still in memory: what was free before a first touch says little."""
    there = region.resident()
    if there < done:
        log.warning(
            "of %d bytes of weights that were read, %d are no longer in memory: the machine swaps, and every use of "
            "those will be slow; give the model less (--ram), or end other programs", done, done - there,
        )  # fmt: skip


def _go_on(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt


def _check(available: int, wanted: int, headroom: int, done: int, total: int) -> None:
    if available - wanted < headroom:
        raise StorageError(
            f"memory ran short while experts were read: {done} of {total} bytes are there, {available} are available, "
            f"and {headroom} are left to the rest of the machine; other programs took what was free at the start. "
            "Give the model less (--ram), or end them; what had been read has been given back"
        )
