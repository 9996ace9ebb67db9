"""How fast a disk is read, past the system's cache."""

import os
import time
from pathlib import Path

from strata.memory.arena import Region, fill
from strata.memory.reads import Item, Readers, ReadFile

THREADS, PIECE = 16, 16 << 20


def forget(path: Path) -> None:
    """Empty the system's cache of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def rate(path: Path) -> float:
    """GB/s of a whole file, by several threads, in large pieces."""
    forget(path)
    source, readers = ReadFile(path), Readers(THREADS)
    region = Region(source.size)
    try:
        items = [
            Item(source, at, min(PIECE, source.size - at), region.address + at, room=True)
            for at in range(0, source.size, PIECE)
        ]
        began = time.perf_counter()
        fill(region, items, readers, total=source.size)
        return source.size / (time.perf_counter() - began) / 1e9
    finally:
        readers.close()
        region.give_back()
