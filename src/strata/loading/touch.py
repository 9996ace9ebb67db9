"""Bringing a mapped file into memory before it is needed, by several threads."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

SLICE = 16 << 20
"""Bytes a thread touches at a time: what is waited for when somebody interrupts."""

THREADS = 8
"""A thread waits for one page after another, so one alone gets a fraction of what a disk can."""


def touch(stored: NDArray[np.uint8], on_bytes: Callable[[int], None]) -> None:
    """Read one byte of every page, so that the system reads all of them.

    Args:
        stored: contiguous, a view of a mapped file.
        on_bytes: called with the bytes that have come, after each slice. What it raises ends it, and no thread goes on.
    """
    flat = stored.reshape(-1)
    slices = [flat[at : at + SLICE] for at in range(0, len(flat), SLICE)]
    if len(slices) == 1:
        _pages(flat)
        on_bytes(len(flat))
        return
    with ThreadPoolExecutor(min(THREADS, len(slices)), "strata-touch") as threads:
        jobs = [threads.submit(_pages, part) for part in slices]
        try:
            for job, part in zip(jobs, slices, strict=True):
                job.result()
                on_bytes(len(part))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def _pages(flat: NDArray[np.uint8]) -> None:
    flat[:: mmap.PAGESIZE].max(initial=0)  # without the interpreter lock
