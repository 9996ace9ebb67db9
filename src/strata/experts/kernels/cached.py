"""Compiling with a cache on disk where there is a place for one, and without where there is none."""

from collections.abc import Callable
from typing import Any

from numba import cfunc, njit

TASK_SIGNATURE = "int64(int64, int64, int64)"


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


def task_function(function: Callable[[int, int, int], int]) -> Any:
    """A task's function (`strata.experts.kernels.task`) that other compiled code calls by its ``address``."""
    try:
        return cfunc(TASK_SIGNATURE, cache=True)(function)
    except (RuntimeError, OSError):  # as above
        return cfunc(TASK_SIGNATURE)(function)
