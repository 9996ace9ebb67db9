"""How fast a disk is read past the system's cache: at random, in pieces of some size and so many at once, and in order.

What is read is a file that is there, or one of random bytes that nobody else sees: it is deleted as soon as it is open.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from strata.errors import StrataError
from strata.lab.rates.rounds import Pace, Sample
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers, ReadFile
from strata.memory.reads.pread import aligned

ALIGNED = 4096
"""Random reads begin at multiples of it."""

STEP = 16 << 20
"""Bytes of a read in order, which several threads share."""

MOST = 64 << 20
"""Bytes of memory that is read to, over and over."""

WRITTEN = 16 << 20
"""Bytes of random numbers that are made and written at a time."""

FEW = 8
"""Reads by which it is guessed how many a round takes."""


@contextmanager
def scratch(folder: Path, nbytes: int, pace: Pace, told: Callable[[int], None] = lambda _: None) -> Iterator[ReadFile]:
    """A file of random bytes on the disk of a folder, as nobody else's as a file can be.

    Args:
        folder: that is there.
        nbytes: of the file.
        pace: asked whether to stop.
        told: called with bytes written.

    Raises:
        StrataError: it cannot be written, for instance for want of room.
        StoppedError: somebody asked to stop.
    """
    handle, name = tempfile.mkstemp(prefix=".strata-", suffix=".unfinished", dir=folder)
    try:
        with os.fdopen(handle, "wb", buffering=0) as out:
            rng = np.random.default_rng(1)
            for at in range(0, nbytes, WRITTEN):
                pace.check()
                out.write(rng.bytes(min(WRITTEN, nbytes - at)))
                told(at)
            os.fsync(out.fileno())
        source = ReadFile(Path(name))
    except OSError as error:
        raise StrataError(f"{folder}: {nbytes} bytes to read back cannot be written: {error.strerror}") from error
    finally:
        Path(name).unlink()  # whoever ends us finds nothing left; the open file lives on
    try:
        yield source
    finally:
        source.close()


class Disk:
    """A file, and threads that read it.

    Args:
        source: of several megabytes at least.
        depth: reads that are under way at once.
        pace: how often.
    """

    def __init__(self, source: ReadFile, depth: int, pace: Pace) -> None:
        self._source, self._pace = source, pace
        self._readers = Readers(depth)
        self._rng = np.random.default_rng(depth)
        self._memory = aligned(MOST, ALIGNED)

    def close(self) -> None:
        """End the threads."""
        self._readers.close()

    def random(self, nbytes: int) -> Sample:
        """GB/s of reads of so many bytes each from anywhere in the file.

        Raises:
            StrataError: the file is too short, or the disk fails.
            StoppedError: somebody asked to stop.
        """
        count = self._pace.amount(self._random(nbytes, FEW), FEW, least=FEW, most=20_000)
        return self._pace.taken(lambda: self._random(nbytes, count)).rate(count * nbytes / 1e9)

    def sequential(self) -> Sample:
        """GB/s of reading a run of the file from some place on."""
        most = max(1, self._source.size // STEP)
        count = self._pace.amount(self._run(1), 1, most=most)
        return self._pace.taken(lambda: self._run(count)).rate(count * min(STEP, self._source.size) / 1e9)

    def _random(self, nbytes: int, count: int) -> float:
        """Seconds of so many reads."""
        places = (self._source.size - nbytes) // ALIGNED
        if places < 1:
            raise StrataError(f"{self._source.path} is too short to be read at random in pieces of {nbytes} bytes")
        offsets = self._rng.integers(0, places + 1, count) * ALIGNED
        room = -(-nbytes // ALIGNED) * ALIGNED
        places_in_memory = max(1, MOST // room)
        base = self._memory.ctypes.data
        items = [
            Item(self._source, offset, nbytes, base + room * (i % places_in_memory), room=True)
            for i, offset in enumerate(offsets.tolist())
        ]
        return self._read(items)

    def _run(self, count: int) -> float:
        """Seconds of so many steps in order."""
        step = min(STEP, self._source.size)
        last = max(0, (self._source.size - count * step) // ALIGNED)
        first = int(self._rng.integers(0, last + 1)) * ALIGNED
        base = self._memory.ctypes.data
        return self._read([
            Item(self._source, first + i * step, step, base + STEP * (i % (MOST // STEP)), room=True)
            for i in range(count)
        ])  # fmt: skip

    def _read(self, items: list[Item]) -> float:
        if not self._source.direct:
            _forget(self._source)
        ticket = self._readers.submit(items, keeps=self._memory)
        try:
            ticket.wait(timeout=600.0)
        except StorageError:
            ticket.abandon()  # nothing may be written to the memory any more
            raise
        return ticket.ended - ticket.began


def _forget(source: ReadFile) -> None:
    """Empty the system's cache of a file that cannot be read past it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
