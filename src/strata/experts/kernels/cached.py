"""Compiling with a cache on disk where there is a place for one, and without where there is none."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """The function compiled for one signature, without the interpreter lock.

    An installation may be read-only and its user without a home: then every process compiles for itself.
    """
    try:
        kept = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "no locator available": no folder can be written
        kept = njit(nogil=True)(function)
    try:
        kept.compile(signature)
    except OSError:  # the disk is full, or the folder was there a moment ago
        kept = njit(nogil=True)(function)
        kept.compile(signature)
    kept.disable_compile()
    return kept
