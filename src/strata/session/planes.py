"""Planes of numbers: each has one byte of every number, the first one their lowest bytes, the last one their top ones.

Every byte is read and written once. NumPy's copies with strides, one a plane, did it at 3.6 GB/s; these loops, compiled
to wide loads and stores, at 40, as fast as a copy (one thread, 4 MiB in the processor's cache).
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata.experts.kernels.cached import compiled
from strata.session.pieces import WIDTHS

Bytes = NDArray[np.uint8]

READ, WRITTEN = "Array(uint8, 1, 'C', readonly=True)", "uint8[::1]"


def split(contents: Bytes, width: int, planes: Bytes) -> None:
    """Take numbers apart.

    Args:
        contents: uint8 [n * width], the numbers.
        width: bytes of one.
        planes: uint8 [n * width], one plane after the other, is written.

    Raises:
        ValueError: there is no loop for such numbers, or lengths differ.
    """
    if width not in WIDTHS or len(contents) % width or len(planes) != len(contents):
        raise ValueError(f"{len(contents)} bytes of numbers of {width} do not become {len(planes)} of planes")
    _splitter()(contents, width, planes)


def join(lower: Bytes, top: Bytes, first: int, width: int, contents: Bytes) -> None:
    """Put some numbers together.

    Args:
        lower: uint8 [n * (width - 1)], all planes but the last, one after the other.
        top: uint8 [m], some of the last one.
        first: the number whose top byte is the first of them.
        width: bytes of a number.
        contents: uint8 [n * width], the numbers, of which `m` are written.

    Raises:
        ValueError: there is no loop for such numbers, or lengths do not fit.
    """
    count, rest = divmod(len(contents), width)
    if width not in WIDTHS or rest or len(lower) != count * (width - 1) or not 0 <= first <= count - len(top):
        raise ValueError(
            f"{len(lower)} bytes of planes and {len(top)} from {first} on are not {len(contents)} of numbers of {width}"
        )
    _joiner()(lower, top, first, width, contents)


def prepare() -> None:
    """Compile the loops, or load them from Numba's cache: 0.4 s once, which no answer should wait for.

    Their first calls, in which Numba looks for the loop that fits, take 12 ms, so they are made here.
    """
    numbers, room = np.zeros(max(WIDTHS), np.uint8), np.zeros(max(WIDTHS), np.uint8)
    split(numbers, 2, room)
    join(room[:2], np.frombuffer(bytes(2), np.uint8), 0, 2, numbers)


def _mark() -> str:
    """Changes whenever this text does; see `strata.experts.kernels.fingerprint`."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


@cache
def _splitter() -> Callable[[Bytes, int, Bytes], int]:
    mark = _mark()

    def split(contents, width, planes):
        if len(mark) == 0:  # its text is part of what is compiled, so that the cache on disk follows changes
            return -1
        count = len(contents) // width
        if width == 2:
            for i in range(count):
                planes[i] = contents[2 * i]
                planes[count + i] = contents[2 * i + 1]
        else:
            for i in range(count):
                planes[i] = contents[4 * i]
                planes[count + i] = contents[4 * i + 1]
                planes[2 * count + i] = contents[4 * i + 2]
                planes[3 * count + i] = contents[4 * i + 3]
        return count

    return compiled(split, f"int64({READ}, int64, {WRITTEN})")


@cache
def _joiner() -> Callable[[Bytes, Bytes, int, int, Bytes], int]:
    mark = _mark()

    def join(lower, top, first, width, contents):
        if len(mark) == 0:
            return -1
        count, numbers = len(contents) // width, contents[first * width :]
        lowest = lower[first:]
        if width == 2:
            for i in range(len(top)):
                numbers[2 * i] = lowest[i]
                numbers[2 * i + 1] = top[i]
        else:
            second, third = lower[count + first :], lower[2 * count + first :]
            for i in range(len(top)):
                numbers[4 * i] = lowest[i]
                numbers[4 * i + 1] = second[i]
                numbers[4 * i + 2] = third[i]
                numbers[4 * i + 3] = top[i]
        return count

    return compiled(join, f"int64({READ}, {READ}, int64, int64, {WRITTEN})")
