"""Stored files on their way to memory: a few requests at a time, past the system's cache, unpacked and checked at once.

A disk that one request at a time does not keep busy may be slower with many than with a few: of one on a shared machine
one reader of 4 MB got 1.26 GB/s, four of 1 MB 1.88, eight and more 1.04 to 1.34. What the system's cache has is taken
from there, which is as fast as memory.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata.model.memory import HUGE, LARGE, Memory, populate
from strata.session import checksum
from strata.session.packing import unpack
from strata.session.pieces import BLOCK, Piece
from strata.session.planes import Bytes

READERS = 4
"""Requests under way at once, of all files together."""

REQUEST = 1 << 20
"""Bytes of one. A file of no more is read at once: threads would take longer to begin."""

SUMMERS = min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""Threads that unpack and sum up what was read."""

BUFFERS = READERS + SUMMERS
"""Packed pieces that are read or unpacked at once."""


class Buffers:
    """Memory for packed pieces, each a piece long. It is used again, and gone when all of it is back.

    Args:
        most: as many are lent at once; who asks for one more waits.
    """

    def __init__(self, most: int) -> None:
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._free: list[Bytes] = []
        self._lent = 0

    def take(self) -> Bytes:
        """One, uint8, at a multiple of `BLOCK`."""
        self._room.acquire()
        with self._lock:
            self._lent += 1
            return self._free.pop() if self._free else _aligned(checksum.PIECE)

    def give(self, buffer: Bytes) -> None:
        """It is not in use any more."""
        with self._lock:
            self._lent -= 1
            self._free.append(buffer)
            if not self._lent:
                self._free.clear()
        self._room.release()


class Hands:
    """The threads that read and those that unpack and sum up. They begin with the first long file."""

    def __init__(self) -> None:
        self.readers = ThreadPoolExecutor(READERS, "strata-read")
        self.summers = ThreadPoolExecutor(SUMMERS, "strata-sum")
        self.buffers = Buffers(BUFFERS)

    def close(self) -> None:
        """End them."""
        self.readers.shutdown(cancel_futures=True)
        self.summers.shutdown(cancel_futures=True)


class Reading:
    """A file's payload on its way to memory, where it is checked piece by piece.

    Args:
        path: of the file.
        size: the file's bytes.
        pieces: of the payload.
        memory: where to.
        hands: who reads; None reads here, at once.

    Raises:
        OSError: it cannot be opened or read.
        EOFError: the file ends before; from `finish` if others read.
        StoredFileError: it is damaged; from `finish` if others read.
    """

    def __init__(self, path: Path, size: int, pieces: Sequence[Piece], memory: Memory, hands: Hands | None) -> None:
        self._payload = sum(piece.size for piece in pieces)
        self._file = _Opened(path, size)
        whole = memory.empty(-(-self._payload // BLOCK) * BLOCK + BLOCK, later=True)
        self._whole = whole[-whole.data_ptr() % BLOCK :]
        self._bytes: Bytes = self._whole.numpy()
        self._ready: Future[None] | None = None
        self._jobs: list[Future[Future[None]]] = []
        if hands is None or self._payload <= REQUEST:
            room = _aligned(max((piece.stored for piece in pieces if not piece.whole), default=0))
            for piece in pieces:
                self._unpack(piece, self._read(piece, room))
            memory.ready(whole)
            return
        self._jobs = [hands.readers.submit(self._read_and_pass_on, piece, hands) for piece in pieces]
        self._ready = _prepared(whole, memory, hands)

    @property
    def payload(self) -> Tensor:
        """uint8, of which those bytes are there that `wait` was called for."""
        return self._whole[: self._payload]

    def wait(self, first: int, end: int) -> None:
        """Return when some bytes of the payload are there, and were checked; as `finish` if they never are.

        The memory is ready then: a device would not copy from it, but through memory that it keeps for such.
        """
        if self._ready is not None:
            self._ready.result()
        for i in range(first // checksum.PIECE, min(len(self._jobs), -(-end // checksum.PIECE))):
            self._jobs[i].result().result()

    def finish(self) -> Tensor:
        """Wait for it: the payload, uint8."""
        for one in [job.result() for job in self._jobs]:
            one.result()
        if self._ready is not None:
            self._ready.result()
        return self.payload

    def _read_and_pass_on(self, piece: Piece, hands: Hands) -> Future[None]:
        if piece.whole:
            return hands.summers.submit(self._unpack, piece, self._read(piece))
        buffer = hands.buffers.take()
        try:
            job = hands.summers.submit(self._unpack, piece, self._read(piece, buffer))
        except BaseException:
            hands.buffers.give(buffer)
            raise
        job.add_done_callback(lambda _: hands.buffers.give(buffer))
        return job

    def _read(self, piece: Piece, buffer: Bytes | None = None) -> Bytes:
        """What the file has of a piece: straight where it is kept, or in a buffer if it is packed."""
        if piece.whole or buffer is None:
            buffer = self._bytes[piece.first :]
        # The last piece may end inside a block; behind it in memory there is nothing yet, and room for the whole block.
        self._file.read(buffer[: -(-piece.stored // BLOCK) * BLOCK].data, piece.place, piece.stored)
        return buffer[: piece.stored]

    def _unpack(self, piece: Piece, stored: Bytes) -> None:
        unpack(piece, stored, self._bytes[piece.first : piece.first + piece.size])


def _prepared(whole: Tensor, memory: Memory, hands: Hands) -> "Future[None]":
    """When pages of all of it are there, and what `Memory.empty` has left is done.

    Pinning a GB takes 30 ms where its pages are there, and 200 where they are not, in which nobody else of the process
    gets any memory, not even for a thread: nothing was read meanwhile.
    """
    step = max(HUGE, -(-len(whole) // SUMMERS // HUGE) * HUGE)
    parts = range(0, len(whole) if len(whole) >= LARGE else 0, step)
    pages = [hands.summers.submit(populate, whole[at : at + step]) for at in parts]

    def ready() -> None:
        for part in pages:  # they were begun before this, so they end
            part.result()
        memory.ready(whole)

    return hands.summers.submit(ready)


class _Opened:
    """A file that is read through the system's cache where that has it, and past it otherwise, if that can be."""

    def __init__(self, path: Path, size: int) -> None:
        self._direct = -1
        self._buffered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._cached = _cached(self._buffered, size) if size > checksum.PIECE else None
        if self._cached is not None and not self._cached.all() and hasattr(os, "O_DIRECT"):
            try:
                self._direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            except OSError:  # a file system without direct reads
                self._direct = -1

    def __del__(self) -> None:
        """Close it."""
        for descriptor in (self._direct, getattr(self, "_buffered", -1)):
            if descriptor >= 0:
                os.close(descriptor)

    def read(self, target: memoryview, place: int, count: int) -> None:
        """Fill `target` with `count` bytes of the file from `place` on; in whole blocks, if it has room for them."""
        at = 0
        while at < count:
            to = min(at + REQUEST, count)
            got = self._past(target[at : -(-to // BLOCK) * BLOCK], place + at)
            if not got:
                got = os.preadv(self._buffered, [target[at:to]], place + at)
            if not got:
                raise EOFError
            at += got

    def _past(self, target: memoryview, place: int) -> int:
        """Bytes that were read past the cache; 0 where that is not worth while, or cannot be."""
        if self._direct < 0 or place % BLOCK or self._cached is None:
            return 0
        if self._cached[place // mmap.PAGESIZE : (place + len(target)) // mmap.PAGESIZE].all():
            return 0
        try:
            return os.preadv(self._direct, [target], place)
        except OSError:  # one is refused, or fails: the other way says what is wrong
            return 0


def _cached(descriptor: int, size: int) -> NDArray[np.bool_] | None:
    """Which pages of a file the system's cache has; None if it does not say."""
    pages = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
    try:
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as whole:
            view = np.frombuffer(whole, np.uint8)
            status = _library().mincore(
                ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), pages.ctypes.data_as(ctypes.c_void_p)
            )
            del view
    except (OSError, ValueError):
        return None
    return None if status else (pages & 1).astype(np.bool_)


def _aligned(nbytes: int) -> Bytes:
    """Memory that direct reads can fill, uint8 [nbytes] in whole blocks."""
    whole = np.empty(-(-nbytes // BLOCK) * BLOCK + BLOCK, np.uint8)
    return whole[-whole.ctypes.data % BLOCK :][: -(-nbytes // BLOCK) * BLOCK]


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)
