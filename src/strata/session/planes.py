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


def join(lower: Bytes, top: Bytes, width: int, contents: Bytes) -> None:
    """Put numbers together.

    Args:
        lower: uint8 [n * (width - 1)], all planes but the last, one after the other.
        top: uint8 [n], the last one.
        width: bytes of a number.
        contents: uint8 [n * width], the numbers, is written.

    Raises:
        ValueError: there is no loop for such numbers, or lengths differ.
    """
    if width not in WIDTHS or len(lower) != len(top) * (width - 1) or len(contents) != len(top) * width:
        raise ValueError(f"{len(lower)} and {len(top)} bytes of planes are not {len(contents)} of numbers of {width}")
    _joiner()(lower, top, width, contents)


def prepare() -> None:
    """Compile the loops, or load them from Numba's cache: half a second once, which no answer should wait for."""
    _splitter()
    _joiner()


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
def _joiner() -> Callable[[Bytes, Bytes, int, Bytes], int]:
    mark = _mark()

    def join(lower, top, width, contents):
        if len(mark) == 0:
            return -1
        count = len(top)
        if width == 2:
            for i in range(count):
                contents[2 * i] = lower[i]
                contents[2 * i + 1] = top[i]
        else:
            for i in range(count):
                contents[4 * i] = lower[i]
                contents[4 * i + 1] = lower[count + i]
                contents[4 * i + 2] = lower[2 * count + i]
                contents[4 * i + 3] = top[i]
        return count

    return compiled(join, f"int64({READ}, {READ}, int64, {WRITTEN})")
