"""How fast a disk is read, past the system's cache."""

import os
import time
from pathlib import Path

from strata.memory.arena import Region, fill
from strata.memory.reads import Item, Readers, ReadFile

WAYS = (4, 1 << 20), (16, 16 << 20)
"""Requests at a time, and their bytes: of one disk few small ones brought 1.9 GB/s and many large ones 1.3, of another
it may be the other way round."""


def forget(path: Path) -> None:
    """Empty the system's cache of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def rate(path: Path) -> float:
    """GB/s of a whole file, in the faster of two ways."""
    return max(_rate(path, *way) for way in WAYS)


def _rate(path: Path, threads: int, piece: int) -> float:
    forget(path)
    source, readers = ReadFile(path), Readers(threads)
    region = Region(source.size)
    try:
        items = [
            Item(source, at, min(piece, source.size - at), region.address + at, room=True)
            for at in range(0, source.size, piece)
        ]
        began = time.perf_counter()
        fill(region, items, readers, total=source.size)
        return source.size / (time.perf_counter() - began) / 1e9
    finally:
        readers.close()
        region.give_back()
