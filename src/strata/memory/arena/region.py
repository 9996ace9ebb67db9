"""One large run of memory that is ours alone: its pages can be given back and taken again."""

import ctypes
import mmap
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.memory.errors import ScarceError, StorageError

HUGE = 2 << 20
"""Bytes of a huge page: what a region starts at a multiple of, so that the system may use them."""

U8 = NDArray[np.uint8]


class Region:
    """Anonymous memory. It costs nothing until it is written to.

    Args:
        nbytes: how many.
        huge: ask for huge pages: fewer misses of the address cache, and giving back less than one splits it.

    Attributes:
        array: uint8 [nbytes], zeros at first; its address is a multiple of 2 MiB.
        huge: whether the system takes the wish for huge pages.

    Raises:
        ScarceError: the system does not give so much.
    """

    def __init__(self, nbytes: int, *, huge: bool = True) -> None:
        try:
            # Private: pages of shared memory stay when they are given back.
            self._map = mmap.mmap(-1, max(1, nbytes) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise ScarceError(f"{nbytes} bytes of memory cannot be had: {error}") from error
        whole: U8 = np.frombuffer(self._map, np.uint8)
        self._first = -whole.ctypes.data % HUGE
        self.array: U8 = whole[self._first : self._first + nbytes]
        self.huge = huge and hasattr(mmap, "MADV_HUGEPAGE")
        if self.huge:
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:  # a kernel without them
                self.huge = False
        if hasattr(mmap, "MADV_DONTDUMP"):
            self._map.madvise(mmap.MADV_DONTDUMP)  # a core file of the process would be as large as the model

    def __len__(self) -> int:
        return len(self.array)

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self.array.ctypes.data

    def give_back(self, first: int = 0, end: int | None = None) -> int:
        """Give the pages that lie wholly inside a part back to the system; their bytes become zeros.

        Returns:
            Bytes given back.
        """
        page = mmap.PAGESIZE
        first = -(-(self._first + first) // page) * page
        end = (self._first + (len(self) if end is None else end)) // page * page
        if end <= first:
            return 0
        self._map.madvise(mmap.MADV_DONTNEED, first, end - first)
        return end - first

    def resident(self, first: int = 0, end: int | None = None) -> int:
        """Bytes of a part that are in memory now: not untouched, not given back, not swapped out."""
        page = mmap.PAGESIZE
        low = (self.address + first) // page * page
        high = self.address + (len(self) if end is None else end)
        if high <= low:
            return 0
        there = np.empty(-(-(high - low) // page), np.uint8)
        if _library().mincore(ctypes.c_void_p(low), ctypes.c_size_t(high - low), there.ctypes.data_as(ctypes.c_void_p)):
            number = ctypes.get_errno()
            raise StorageError(f"the system does not say what is in memory: {os.strerror(number)}")
        return int((there & 1).sum()) * page

    def lock(self, first: int = 0, end: int | None = None) -> str:
        """Keep a part from being swapped out. Returns why that cannot be, or nothing."""
        end = len(self) if end is None else end
        if _library().mlock(ctypes.c_void_p(self.address + first), ctypes.c_size_t(end - first)):
            return os.strerror(ctypes.get_errno())
        return ""

    def unlock(self) -> None:
        """Undo `lock`."""
        _library().munlock(ctypes.c_void_p(self.address), ctypes.c_size_t(len(self)))


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)
