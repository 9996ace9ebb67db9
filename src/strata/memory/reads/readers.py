"""Threads that read pieces of files into memory while others compute."""

import atexit
import ctypes
import os
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strata.memory.errors import StorageError
from strata.memory.reads import pread
from strata.memory.reads.file import REFUSED, ReadFile

PIECE = 1 << 20
"""Bytes of a long read that one thread takes at a time."""

THREADS = 8
"""As many reads as a disk is asked for at once. Threads wait in the system, so there may be more than processors."""


class Item(NamedTuple):
    """One piece of a file and where it goes.

    Attributes:
        file: which.
        offset: first byte.
        nbytes: how many.
        to: address of the memory.
        room: whether what surrounds the piece in its blocks may be written around it, too: then the address must be as
            far behind a multiple of the file's block as the offset is, and the read needs no copy.
    """

    file: ReadFile
    offset: int
    nbytes: int
    to: int
    room: bool = False


class Ticket:
    """Reads that are under way. Whoever holds it keeps what they write to.

    Attributes:
        began: when they were asked for, `time.perf_counter`.
        ended: when the last was done; 0 before.
    """

    def __init__(self, items: Sequence[Item], keeps: Any) -> None:
        self.began = time.perf_counter()
        self.ended = 0.0
        self._keeps = keeps
        self._parts = [part for item in items for part in _parts(item)]
        count = len(self._parts)
        self._items, self._ways = _words(self._parts)
        self._batch = np.array([self._items.ctypes.data, count, 0, 0], np.int64)
        self._lock = threading.Lock()
        self._left = count
        self._done = threading.Event()
        if not count:
            self._finish(0)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def done(self) -> bool:
        """Whether nothing is under way any more."""
        return self._done.is_set()

    @property
    def nbytes(self) -> int:
        """Bytes that are wanted."""
        return sum(part.nbytes for part in self._parts)

    def wait(self, timeout: float | None = None) -> None:
        """Return when everything has been read.

        Raises:
            StorageError: the disk failed, a file has become shorter, or the time is over; then the reads go on.
        """
        if not self._done.wait(timeout):
            raise StorageError(f"{len(self)} reads took longer than {timeout:g} seconds; is the disk still there?")
        self._check()

    def abandon(self) -> None:
        """Begin none of the reads that have not begun, and return when the others are over; raises nothing."""
        self._batch[pread.STOP // 8] = 1
        self._done.wait()

    def run(self, scratch: int, functions: tuple[int, int]) -> None:
        """Take part, in a thread whose buffer is given."""
        taken = pread.runner()(self._batch.ctypes.data, self._ways.ctypes.data, *functions, scratch)
        if taken:
            self._finish(taken)

    def _finish(self, taken: int) -> None:
        with self._lock:
            self._left -= taken
            if self._left == 0:
                self.ended = time.perf_counter()
                self._done.set()

    def _check(self) -> None:
        results = self._items[:, pread.RESULT // 8]
        for i in np.flatnonzero(results <= 0).tolist():
            part, number = self._parts[i], -int(results[i])
            if number not in REFUSED or abs(int(self._ways[i])) == 1:
                raise (
                    part.file.ended(part.offset) if results[i] == pread.SHORT else part.file.failed(part.offset, number)
                )
            part.file.refuse(os.strerror(number))
            self._again(i)

    def _again(self, i: int) -> None:
        """A direct read that was refused after all, in this thread."""
        part = self._parts[i]
        whole = np.empty(part.nbytes, np.uint8)
        part.file.read(whole.data, part.offset)
        _memory(part.to, part.nbytes)[:] = whole
        self._items[i, pread.RESULT // 8] = part.nbytes


class Readers:
    """A fixed number of reading threads, started when first needed.

    Args:
        threads: how many.
        functions: addresses of ``pread`` and of the error number's function; None for the system's.
    """

    def __init__(self, threads: int = THREADS, functions: tuple[int, int] | None = None) -> None:
        self._count = threads
        self._functions = functions
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        _ALL.add(self)

    @property
    def threads(self) -> int:
        """How many there are."""
        return self._count

    def submit(self, items: Sequence[Item], keeps: Any = None) -> Ticket:
        """Begin to read.

        Args:
            items: what, in the order in which it is begun.
            keeps: what must live until everything has been read: the memory that is written to.
        """
        ticket = Ticket(items, keeps)
        if len(ticket):
            self._start()
            for _ in range(min(self._count, len(ticket))):
                self._queue.put(ticket)
        return ticket

    def close(self) -> None:
        """End the threads when they have done what was asked of them; a later call starts them again."""
        with self._lock:
            if self._process == os.getpid():
                for _ in self._threads:
                    self._queue.put(None)
                for thread in self._threads:
                    thread.join()
            self._threads = []

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():  # a forked child has none of the threads, and their queue may be locked
                self._threads, self._queue, self._process = [], queue.SimpleQueue(), os.getpid()
            if self._threads:
                return
            functions = pread.system() if self._functions is None else self._functions
            pread.runner()
            for i in range(self._count):
                thread = threading.Thread(
                    target=_serve, args=(self._queue, functions), name=f"strata-read-{i}", daemon=True
                )
                thread.start()
                self._threads.append(thread)


def _serve(tickets: "queue.SimpleQueue[Ticket | None]", functions: tuple[int, int]) -> None:
    scratch = pread.aligned(pread.SCRATCH, 65536)
    while (ticket := tickets.get()) is not None:
        ticket.run(scratch.ctypes.data, functions)
        del ticket  # it keeps memory alive, and the next may be long in coming


def _parts(item: Item) -> list[Item]:
    """A long read in several, cut where blocks are."""
    if item.nbytes <= PIECE:
        return [item]
    first = PIECE - item.offset % item.file.block
    cuts = [0, *range(first, item.nbytes, PIECE), item.nbytes]
    return [item._replace(offset=item.offset + at, nbytes=end - at, to=item.to + at) for at, end in pairwise(cuts)]


def _words(parts: Sequence[Item]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items as compiled code takes them, int64 [n, 8], and their blocks, negative where they are read in place."""
    items, ways = np.zeros((len(parts), 8), np.int64), np.ones(len(parts), np.int64)
    for i, (file, offset, nbytes, to, room) in enumerate(parts):
        block = file.block
        first, length = file.around(offset, nbytes)
        inside = block == 1 or (room and (to - offset) % block == 0)
        items[i] = file.descriptor, first, length, offset - first + nbytes, offset - first, nbytes, to, 0
        ways[i] = -block if inside else block
    return items, ways


def _memory(address: int, nbytes: int) -> NDArray[np.uint8]:
    """Memory by its address, which somebody else keeps."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


_ALL: "weakref.WeakSet[Readers]" = weakref.WeakSet()


def _close_all() -> None:
    for readers in list(_ALL):
        readers.close()


atexit.register(_close_all)
