"""Stored files on their way to memory: a few requests at a time, past the system's cache, and summed up meanwhile.

A disk that one request at a time does not keep busy may be slower with many than with a few: of one on a shared machine
one reader of 4 MB got 1.26 GB/s, four of 1 MB 1.88, eight and more 1.04 to 1.34. What the system's cache has is taken
from there, which is as fast as memory.
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata.model.memory import Memory
from strata.session import checksum
from strata.session.checksum import DIGEST

READERS = 4
"""Requests under way at once, of all files together."""

REQUEST = 1 << 20
"""Bytes of one."""

SUMMERS = 4
"""Threads that sum up what was read, a gigabyte a second each."""

BLOCK = 4096
"""Bytes that places, lengths and addresses of direct reads are multiples of."""


class Hands:
    """The threads that read and those that sum up. They begin with the first long file."""

    def __init__(self) -> None:
        self.readers = ThreadPoolExecutor(READERS, "strata-read")
        self.summers = ThreadPoolExecutor(SUMMERS, "strata-sum")

    def close(self) -> None:
        """End them."""
        self.readers.shutdown(cancel_futures=True)
        self.summers.shutdown(cancel_futures=True)


class Reading:
    """A file's payload, and the sum that seals it, on their way to memory.

    Args:
        path: of the file.
        start: the payload's first byte.
        size: the file's bytes; the last `DIGEST` are the seal.
        memory: where to.
        hands: who reads; None reads here, at once.

    Raises:
        OSError: it cannot be opened or read.
        EOFError: the file ends before; from `finish` if others read.
    """

    def __init__(self, path: Path, start: int, size: int, memory: Memory, hands: Hands | None) -> None:
        self._start, self._payload = start, size - DIGEST - start
        self._memory = memory
        self._file = _Opened(path, size)
        whole = memory.empty(-(-(size - start) // BLOCK) * BLOCK + BLOCK, later=True)
        self._whole = whole[-whole.data_ptr() % BLOCK :]
        self._ready: Future[None] | None = None
        self._jobs: list[Future[Future[bytes] | None]] = []
        self._sums: list[bytes] = []
        pieces = range(0, size - start, checksum.PIECE)
        if hands is None or len(pieces) < 2:
            for first in pieces:
                self._read(first)
            self._sums = [self._sum(first) for first in self._summed(pieces)]
            memory.ready(whole)
            return
        self._ready = hands.summers.submit(memory.ready, whole)
        self._jobs = [hands.readers.submit(self._read_and_pass_on, first, hands) for first in pieces]

    def finish(self) -> tuple[Tensor, list[bytes], bytes]:
        """Wait for it: the payload, uint8, the sums of its pieces, and the seal."""
        if self._ready is not None:
            passed = [job.result() for job in self._jobs]
            self._sums = [one.result() for one in passed if one is not None]
            self._ready.result()
        payload = self._whole[: self._payload]
        return payload, self._sums, self._whole[self._payload : self._payload + DIGEST].numpy().tobytes()

    def _summed(self, pieces: Sequence[int]) -> list[int]:
        """Of pieces of the file those that are pieces of the payload: the last may hold the seal alone."""
        return [first for first in pieces if first < self._payload]

    def _read_and_pass_on(self, first: int, hands: Hands) -> "Future[bytes] | None":
        self._read(first)
        return hands.summers.submit(self._sum, first) if first < self._payload else None

    def _read(self, first: int) -> None:
        end = min(first + checksum.PIECE, self._payload + DIGEST)
        self._file.read(self._whole.numpy().data, first, end, self._start)

    def _sum(self, first: int) -> bytes:
        return checksum.summed(self._whole[first : min(first + checksum.PIECE, self._payload)].numpy().data)


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

    def read(self, target: memoryview, first: int, end: int, start: int) -> None:
        """Fill `target` from `first` to `end` with the file's bytes from `start + first` on."""
        at = first
        while at < end:
            to = min(at + REQUEST, end)
            count = self._past(target[at : -(-to // BLOCK) * BLOCK], start + at)
            if not count:
                count = os.preadv(self._buffered, [target[at:to]], start + at)
            if not count:
                raise EOFError
            at += count

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


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)
