"""A matrix times rows of activations, on the pool where that pays."""

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strata.experts.compute.matrix import CODE, OUTPUTS, ROW, WIDTH, Stored
from strata.experts.compute.shares import largest, most_items, share, smallest
from strata.experts.compute.steps import cut, matrix_task, quantiser, quantising_task, records_bytes
from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import peek
from strata.experts.kernels.task import ROWS_TOGETHER, TASK
from strata.experts.pool.pool import Pool
from strata.experts.pool.region import ITEM, WORKERS, alone, work

SHARED = 131072
"""Bytes of weights, times rows, from which the pool takes part; below, the caller is done before others have begun."""


@njit
def run_all(state, items, count, shared):
    """Run a list of items, on the pool or in this thread alone."""
    return work(state, items, count) if shared else alone(items, count)


@cache
def _runner() -> Any:
    mark = fingerprint()

    def run(state, descriptor, x, rows, out, quantise_code):
        if len(mark) == 0:  # see `worker_loop`
            return 1
        width, outputs, size = peek(descriptor + WIDTH), peek(descriptor + OUTPUTS), records_bytes(descriptor)
        row_bytes, threads = peek(descriptor + ROW), peek(state + WORKERS) + 1
        shared = threads > 1 and row_bytes * outputs * rows >= SHARED
        sharing, least, largest_part = threads if shared else 1, smallest(row_bytes), largest(row_bytes, outputs, rows)
        most = max(most_items(outputs, 1, sharing, largest_part), (rows + ROWS_TOGETHER - 1) // ROWS_TOGETHER)
        tables, items = np.empty(2 * rows + 16, np.int64), np.empty((most, ITEM // 8), np.int64)
        records = np.empty(size * rows + 64, np.uint8)
        aligned = (records.ctypes.data + 63) // 64 * 64
        for t in range(rows):
            tables[t] = aligned + size * t if size else x + 4 * width * t
            tables[rows + t] = out + 4 * outputs * t
        inputs, list_ = tables.ctypes.data, items.ctypes.data
        task, quantising = inputs + 16 * rows, inputs + 16 * rows + TASK
        quantising_task(quantising, descriptor, x, inputs)
        matrix_task(task, descriptor, 0, rows, inputs, inputs + 8 * rows)
        failed = 0
        if size:
            failed = run_all(state, list_, cut(list_, quantise_code, quantising, rows, ROWS_TOGETHER), shared)
        if failed == 0:
            count = share(list_, peek(descriptor + CODE), task, outputs, 0, sharing, least, largest_part, 0)
            failed = run_all(state, list_, count, shared)
        # What was made here must live until here: its addresses alone keep nothing.
        tables[0], items[0, 0], records[0] = 0, 0, 0
        return failed

    return compiled(run, "int64(int64, int64, int64, int64, int64, int64)")


def linear(pool: Pool, matrix: Stored, x: int, rows: int, out: int) -> None:
    """Matrix times activations: `strata.experts.judge`'s bytes.

    Args:
        pool: who computes.
        matrix: one matrix.
        x: address of ``float32 [rows, K]``, contiguous.
        rows: how many.
        out: address of ``float32 [rows, N]``, contiguous.
    """
    pool.run(_runner(), matrix.address, x, rows, out, quantiser().address)


def product(pool: Pool, matrix: Stored, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """As `linear`, on arrays: ``float32 [T, K] -> [T, N]``."""
    rows = np.ascontiguousarray(x, dtype=np.float32)
    out = np.empty((len(rows), matrix.n), dtype=np.float32)
    linear(pool, matrix, rows.ctypes.data, len(rows), out.ctypes.data)
    return out
