"""How the outputs of matrices are cut into items for threads that take one after the other.

An item costs more than its bytes: it has to be claimed, and its weights come slowly until the processor sees where the
reading goes. So items should be few. But who takes a last one keeps the others waiting, and threads neither begin at
once nor are equally fast. So items begin as two thirds of a thread's fair share of all that is left, and end small: of
one expert of 640 outputs 16 threads take 48 items of 32 to 8 outputs, of four 81 of 112 to 8. With two threads a list
of four takes 8% less time so than cut into equal items that leave nobody to wait.
"""

from numba import njit

from strata.experts.kernels.memory import poke
from strata.experts.kernels.task import ROWS_TOGETHER
from strata.experts.pool.region import AFTER, ITEM

LEAST = 8192
"""Bytes of weights in an item at least, about: two microseconds of one of 16 threads."""

CACHED = 131072
"""Bytes of weights in an item at most where several groups of rows pass over it, so that it stays in the cache."""


@njit
def smallest(row_bytes):
    """Outputs in an item at least, a multiple of eight."""
    return max(LEAST // row_bytes + 7, 8) // 8 * 8


@njit
def largest(row_bytes, outputs, rows):
    """Outputs in an item at most, for so many rows of activations: all, or a multiple of eight."""
    if rows <= ROWS_TOGETHER:
        return outputs
    return min(max(CACHED // row_bytes // 8 * 8, 8), outputs)


@njit
def most_items(outputs, count, threads, most):
    """Of `count` matrices of as many outputs: no list that `share` writes of them is longer."""
    return min((outputs + 7) // 8 * count, count + 2 * outputs * count // most + 64 * threads)


@njit
def share(items, code, task, outputs, behind, threads, least, most, after):
    """Cut a matrix's outputs into items; returns how many.

    Args:
        items: address where they are written.
        code: of their function.
        task: their task.
        outputs: of the matrix.
        behind: outputs that follow in the same list.
        threads: that take items.
        least: outputs in an item, if there are as many: `smallest`.
        most: as well: `largest`.
        after: address of a word that is not 0 when they can begin, or 0.
    """
    first, count, third = 0, 0, (2 << 32) // (3 * threads)  # divided once: items are written before any thread begins
    while first < outputs:
        left, part = outputs - first, most
        if threads > 1:
            part = min(max((left + behind) * third >> 32, least), most)
        if part < left < 2 * part:  # no crumb is left
            part = left // 2
        part = min((part + 7) // 8 * 8, left)
        item = items + count * ITEM
        poke(item, code)
        poke(item + 8, task)
        poke(item + 16, first)
        poke(item + 24, first + part)
        poke(item + AFTER, after)
        first += part
        count += 1
    return count
