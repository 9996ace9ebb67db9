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


I64 = NDArray[np.int64]

Words = tuple[I64, I64]
"""Items as compiled code takes them, int64 [n, 8], and their blocks, negative where they are read in place."""


class Ticket:
    """Reads that are under way. Whoever holds it keeps what they write to.

    Attributes:
        began: when they were asked for, `time.perf_counter`.
        ended: when the last was done; 0 before.
    """

    def __init__(
        self, words: Words, files: Sequence[ReadFile], keeps: Any, told: threading.Event | None = None
    ) -> None:
        self.began = time.perf_counter()
        self.ended = 0.0
        self._keeps = keeps
        self._told = told
        self._files = files
        self._items, self._ways = words
        count = len(self._items)
        self._batch = np.array([self._items.ctypes.data, count, 0, 0], np.int64)
        self._lock = threading.Lock()
        self._left = count
        self._inside = 0  # threads that take part now
        self._lost = ""
        self._done = threading.Event()
        if not count:
            self._leave(0)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def done(self) -> bool:
        """Whether nothing is under way any more."""
        return self._done.is_set()

    @property
    def nbytes(self) -> int:
        """Bytes that are wanted."""
        return int(self._items[:, pread.WANTED // 8].sum())

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
        with self._lock:
            if self._lost:
                return
            self._inside += 1
        taken = 0
        try:
            taken = pread.runner()(self._batch.ctypes.data, self._ways.ctypes.data, *functions, scratch)
        finally:
            with self._lock:
                self._inside -= 1
                self._leave(taken)

    def lose(self, error: BaseException) -> None:
        """A thread failed while it took part: nobody reads what it had in hand, and nothing more is begun."""
        with self._lock:
            self._lost = self._lost or f"{type(error).__name__}: {error}"
            self._batch[pread.STOP // 8] = 1
            self._leave(0)

    def _leave(self, taken: int) -> None:
        self._left -= taken
        if not self._done.is_set() and (self._left == 0 or (self._lost and self._inside == 0)):
            self.ended = time.perf_counter()
            self._done.set()
            if self._told is not None:
                self._told.set()

    def _check(self) -> None:
        if self._lost:
            names = ", ".join(sorted({str(file.path) for file in self._files}))
            raise StorageError(f"{names}: a thread failed while it was reading ({self._lost}); ask again")
        results = self._items[:, pread.RESULT // 8]
        for i in np.flatnonzero(results <= 0).tolist():
            number, file = -int(results[i]), self._files[i if len(self._files) > 1 else 0]
            columns = (pread.OFFSET, pread.SKIP, pread.WANTED, pread.TO)
            at, skip, nbytes, to = (int(self._items[i, column // 8]) for column in columns)
            if number not in REFUSED or abs(int(self._ways[i])) == 1:
                raise file.ended(at + skip) if results[i] == pread.SHORT else file.failed(at + skip, number)
            # A direct read that was refused after all: in this thread.
            file.refuse(os.strerror(number))
            whole = np.empty(nbytes, np.uint8)
            file.read(whole.data, at + skip)
            _memory(to, nbytes)[:] = whole
            results[i] = nbytes


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
        self._ended = weakref.finalize(self, _end, self._queue, threads)
        self._ended.atexit = False  # daemons; `_close_all` waits for them
        _ALL.add(self)

    @property
    def threads(self) -> int:
        """How many there are."""
        return self._count

    def submit(self, items: Sequence[Item], keeps: Any = None, told: threading.Event | None = None) -> Ticket:
        """Begin to read.

        Args:
            items: what, in the order in which it is begun.
            keeps: what must live until everything has been read: the memory that is written to.
            told: set when everything has been read, or will not be.
        """
        parts = [part for item in items for part in _parts(item)]
        return self._begun(Ticket(_words(parts), [part.file for part in parts], keeps, told))

    def submit_rows(self, file: ReadFile, offsets: I64, nbytes: int, targets: I64, keeps: Any = None) -> Ticket:
        """Begin to read many short pieces of one length.

        Args:
            file: of all.
            offsets: int64 [n], where each begins.
            nbytes: of each.
            targets: int64 [n], addresses they go to.
            keeps: as for `submit`.
        """
        items, block = np.empty((len(offsets), 8), np.int64), file.block
        first = offsets - offsets % block
        end = offsets + nbytes
        items[:, pread.FILE // 8] = file.descriptor
        items[:, pread.OFFSET // 8] = first
        items[:, pread.ROOM // 8] = -(-end // block) * block - first
        items[:, pread.NEEDED // 8] = end - first
        items[:, pread.SKIP // 8] = offsets - first
        items[:, pread.WANTED // 8] = nbytes
        items[:, pread.TO // 8] = targets
        items[:, pread.RESULT // 8] = 0
        ways = np.full(len(offsets), -1 if block == 1 else block, np.int64)
        return self._begun(Ticket((items, ways), (file,), keeps))

    def _begun(self, ticket: Ticket) -> Ticket:
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
                self._ended.detach()
                self._ended = weakref.finalize(self, _end, self._queue, self._count)
                self._ended.atexit = False
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


def _end(tickets: "queue.SimpleQueue[Ticket | None]", threads: int) -> None:
    """Nobody can ask any more: threads go when they have done what they were asked."""
    for _ in range(threads):
        tickets.put(None)


def _serve(tickets: "queue.SimpleQueue[Ticket | None]", functions: tuple[int, int]) -> None:
    scratch: NDArray[np.uint8] | None = None
    while (ticket := tickets.get()) is not None:
        try:
            if scratch is None:
                scratch = pread.aligned(pread.SCRATCH, 65536)
            ticket.run(scratch.ctypes.data, functions)
        except BaseException as error:  # noqa: BLE001  # whoever waits for the ticket says it; the thread goes on
            ticket.lose(error)
        del ticket  # it keeps memory alive, and the next may be long in coming


def _parts(item: Item) -> list[Item]:
    """A long read in several, cut where blocks are."""
    if item.nbytes <= PIECE:
        return [item]
    first = PIECE - item.offset % item.file.block
    cuts = [0, *range(first, item.nbytes, PIECE), item.nbytes]
    return [item._replace(offset=item.offset + at, nbytes=end - at, to=item.to + at) for at, end in pairwise(cuts)]


def _words(parts: Sequence[Item]) -> Words:
    """Items for compiled code."""
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
