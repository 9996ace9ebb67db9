"""How fast main memory is read: the sum of all its words, by some threads at once."""

import contextlib
import itertools
import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import StrataError
from strata.lab.rates.rounds import Pace, Sample


@cache
def reader() -> Any:
    """A compiled sum of 64-bit words, without the interpreter's lock: nothing but reading."""
    from numba import njit, uint64

    def read(words):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
        total = uint64(0)
        for i in range(len(words)):
            total += words[i]
        return total

    kept = njit(nogil=True)(read)
    kept.compile("uint64(uint64[::1])")
    return kept


def memory(nbytes: int) -> NDArray[np.uint64]:
    """So much memory, every page of it touched."""
    words = np.empty(nbytes // 8, np.uint64)
    words[:] = 1
    return words


def ram_read(words: NDArray[np.uint64], cpus: Sequence[int | None], pace: Pace) -> Sample:
    """GB/s of reading memory with one thread on each of some processors.

    Args:
        words: much more than the caches hold.
        cpus: where threads run; None for anywhere.
        pace: how often.

    Raises:
        StoppedError: somebody asked to stop.
    """
    read, count = reader(), len(cpus)
    borders = np.linspace(0, len(words), count + 1).astype(int)
    begin, end = threading.Barrier(count + 1), threading.Barrier(count + 1)
    over = threading.Event()
    wrong: list[int] = []

    def run(cpu: int | None, mine: NDArray[np.uint64]) -> None:
        if cpu is not None:
            with contextlib.suppress(OSError, AttributeError):  # taken away since it was chosen
                os.sched_setaffinity(threading.get_native_id(), {cpu})
        expected = len(mine)
        while True:
            begin.wait()
            if over.is_set():
                return
            if int(read(mine)) != expected:
                wrong.append(1)
            end.wait()

    pieces = [words[a:b] for a, b in itertools.pairwise(borders)]
    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(cpus, pieces, strict=True)]
    for thread in threads:
        thread.start()

    def once() -> None:
        begin.wait()
        end.wait()

    try:
        found = pace.timed(once)
    finally:
        over.set()
        begin.wait()
        for thread in threads:
            thread.join()
    if wrong:
        raise StrataError("memory that held ones was read as something else; is it faulty?")
    return found.rate(words.nbytes / 1e9)


def counts(most: int, *, quick: bool = False) -> list[int]:
    """Numbers of threads to try: 1, 2, 4 and so on, and all; a quick look takes one and all."""
    doubled = [1 << n for n in range(most.bit_length()) if 1 << n < most]
    return sorted({1, most} if quick else {*doubled, most})
