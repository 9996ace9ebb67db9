"""Experts on the pool: each row of weights is read once for all rows of activations that visit its expert.

Rows are grouped by expert. Gate and up are one list of items, an expert cut into parts of its width; whoever finishes
an expert's last part quantises its h. After the barrier the down matrices are the second list, and the weighted sums,
in the router's order, the third. An expert's row is kept whole until then, so nothing depends on who computed it.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strata.experts.compute.linear import SHARED, run_all
from strata.experts.compute.matrix import CODE, OFFSET, ORDER, OUTPUTS, ROW, WIDTH, Stored
from strata.experts.compute.shares import largest, most_items, share, smallest
from strata.experts.compute.steps import (
    C_OUT,
    C_ROWS,
    C_TOPK,
    C_WEIGHTS,
    C_WIDTH,
    COUNTER,
    DONE,
    EXPERT_TASK,
    GATE,
    GATE_CODE,
    OF,
    OFFSET_AT,
    ORDER_AT,
    RECORDS,
    UP,
    UP_CODE,
    by_expert,
    combiner,
    cut,
    gate_up,
    matrix_task,
    quantiser,
    quantising_task,
    records_bytes,
)
from strata.experts.errors import KernelError
from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import peek, poke
from strata.experts.kernels.task import ROWS_TOGETHER
from strata.experts.pool.pool import Pool
from strata.experts.pool.region import ITEM, WORKERS


class Expert(NamedTuple):
    """The matrices of a layer's experts, or of one."""

    gate: Stored  # [E, I, H]
    up: Stored  # [E, I, H]
    down: Stored  # [E, H, I]


@cache
def _runner() -> Any:  # noqa: C901, PLR0915  # one plan, from top to bottom
    mark = fingerprint()

    def run(state, gate, up, down, experts, x, route, weights, rows, topk, out, codes):  # noqa: C901, PLR0915
        # Addresses of: descriptors of the matrices; x float32 [rows, H]; route int64 and weights float32 [rows, topk];
        # out float32 [rows, H]; codes of `quantiser`, `gate_up` and `combiner`.
        if len(mark) == 0:  # see `worker_loop`
            return 1
        wide, inner, slots = peek(gate + WIDTH), peek(gate + OUTPUTS), rows * topk
        starts, order = np.zeros(experts + 1, np.int64), np.empty(slots, np.int64)
        visited = by_expert(route, slots, starts, order)

        # Memory: activations as the matrices take them, h, and every expert's row.
        gate_size, up_size, down_size = records_bytes(gate), records_bytes(up), records_bytes(down)
        shares = peek(gate + ORDER) == peek(up + ORDER) and peek(gate + OFFSET) == peek(up + OFFSET)
        records = np.empty((gate_size + (0 if shares else up_size)) * rows + down_size * slots + 64, np.uint8)
        gate_at = (records.ctypes.data + 63) // 64 * 64
        up_at = gate_at if shares else gate_at + gate_size * rows
        h_at = up_at + up_size * rows
        h, results = np.empty((2, slots, inner), np.float32), np.empty((slots, wide), np.float32)

        # Items in the largest number they can have, reused from list to list.
        threads, most = peek(state + WORKERS) + 1, min(slots, rows)
        row_bytes = (peek(gate + ROW) + peek(up + ROW)) * inner + peek(down + ROW) * wide
        shared = threads > 1 and row_bytes * slots >= SHARED
        up_bytes, sharing = peek(gate + ROW) + peek(up + ROW), threads if shared else 1
        up_most, down_most = largest(up_bytes, inner, most), largest(peek(down + ROW), wide, most)
        up_items = most_items(inner, visited, sharing, up_most)
        down_items = most_items(wide, visited, sharing, down_most)
        row_parts = (rows + ROWS_TOGETHER - 1) // ROWS_TOGETHER
        items = np.empty((max(2 * row_parts, up_items, down_items), ITEM // 8), np.int64)
        list_, words = items.ctypes.data, np.empty((4, 8), np.int64)

        # Rows to records.
        inputs = np.empty((2, rows), np.int64)
        for t in range(rows):
            inputs[0, t] = gate_at + gate_size * t if gate_size else x + 4 * wide * t
            inputs[1, t] = up_at + up_size * t if up_size else x + 4 * wide * t
        count = 0
        if gate_size:
            quantising_task(words[0].ctypes.data, gate, x, inputs[0].ctypes.data)
            count += cut(list_, peek(codes), words[0].ctypes.data, rows, ROWS_TOGETHER)
        if up_size and not shares:
            quantising_task(words[1].ctypes.data, up, x, inputs[1].ctypes.data)
            count += cut(list_ + count * ITEM, peek(codes), words[1].ctypes.data, rows, ROWS_TOGETHER)
        failed = run_all(state, list_, count, shared and rows > ROWS_TOGETHER)

        # Gate and up.
        tables = np.empty((6, slots), np.int64)
        for i in range(slots):
            slot = order[i]
            tables[0, i], tables[1, i] = inputs[0, slot // topk], inputs[1, slot // topk]
            tables[2, i], tables[3, i] = h[0, slot].ctypes.data, h[1, slot].ctypes.data
            tables[4, i] = h_at + down_size * slot if down_size else tables[2, i]
            tables[5, i] = results[slot].ctypes.data
        tasks, counters = np.empty((visited, EXPERT_TASK // 8), np.int64), np.zeros((visited, COUNTER // 8), np.int64)
        at, count, least = 0, 0, smallest(up_bytes)
        for e in range(experts):
            n = starts[e + 1] - starts[e]
            if n > 0:
                task, column = tasks[at].ctypes.data, tables.ctypes.data + 8 * starts[e]
                poke(task + GATE_CODE, peek(gate + CODE))
                poke(task + UP_CODE, peek(up + CODE))
                matrix_task(task + GATE, gate, e, n, column, column + 16 * slots)
                matrix_task(task + UP, up, e, n, column + 8 * slots, column + 24 * slots)
                counters[at, OF // 8] = inner
                poke(task + DONE, counters[at].ctypes.data)
                poke(task + ORDER_AT, peek(down + ORDER))
                poke(task + OFFSET_AT, peek(down + OFFSET))
                poke(task + RECORDS, column + 32 * slots)
                at += 1
                to, behind = list_ + count * ITEM, (visited - at) * inner
                count += share(to, peek(codes + 8), task, inner, behind, sharing, least, up_most, 0)
        if failed == 0:
            failed = run_all(state, list_, count, shared)

        # Down. The tasks of before are done with.
        at, count, least = 0, 0, smallest(peek(down + ROW))
        for e in range(experts):
            n = starts[e + 1] - starts[e]
            if n > 0 and failed == 0:
                task, column = tasks[at].ctypes.data, tables.ctypes.data + 8 * starts[e]
                matrix_task(task, down, e, n, column + 32 * slots, column + 40 * slots)
                at += 1
                to, behind = list_ + count * ITEM, (visited - at) * wide
                count += share(to, peek(down + CODE), task, wide, behind, sharing, least, down_most, 0)
        if failed == 0:
            failed = run_all(state, list_, count, shared)

        # Weighted sums.
        task = words[2].ctypes.data
        poke(task + C_ROWS, results.ctypes.data)
        poke(task + C_WEIGHTS, weights)
        poke(task + C_OUT, out)
        poke(task + C_TOPK, topk)
        poke(task + C_WIDTH, wide)
        count = cut(list_, peek(codes + 16), task, rows, ROWS_TOGETHER)
        if failed == 0:
            failed = run_all(state, list_, count, shared)
        # What was made here must live until here: its addresses alone keep nothing.
        records[0], h[0, 0, 0], results[0, 0], items[0, 0], words[0, 0] = 0, 0, 0, 0, 0
        inputs[0, 0], tables[0, 0], tasks[0, 0], counters[0, 0], starts[0], order[0] = 0, 0, 0, 0, 0, 0
        return failed

    return compiled(run, f"int64({', '.join(['int64'] * 12)})")


@cache
def _codes() -> tuple[Any, NDArray[np.int64]]:
    functions = (quantiser(), gate_up(), combiner())
    return functions, np.array([function.address for function in functions], dtype=np.int64)


def experts(
    pool: Pool, matrices: Expert, x: NDArray[np.float32], route: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weighted sum of each row's experts, added in the order given: `strata.experts.judge`'s bytes.

    Args:
        pool: who computes.
        matrices: of all experts.
        x: ``float32 [T, H]``.
        route: numbers of each row's experts, ``int64 [T, topk]``.
        weights: ``float32 [T, topk]``.

    Returns:
        ``float32 [T, H]``.

    Raises:
        KernelError: if the operands do not fit together.
    """
    gate, up, down = matrices
    shapes = {(m.experts, m.n, m.k) for m in (gate, up)} | {(down.experts, down.k, down.n)}
    if len(shapes) != 1:
        raise KernelError(f"gate, up and down do not fit together: {[(m.experts, m.n, m.k) for m in matrices]}")
    if x.ndim != 2 or x.shape[1] != gate.k or route.shape != weights.shape or len(route) != len(x) or not route.size:
        raise KernelError(f"x [T, {gate.k}] and route [T, k] are needed, not {list(x.shape)} and {list(route.shape)}")
    if route.min() < 0 or route.max() >= gate.experts:
        raise KernelError(
            f"there are experts 0 to {gate.experts - 1}, but the route names {route.min()} to {route.max()}"
        )
    x, weights = np.ascontiguousarray(x, dtype=np.float32), np.ascontiguousarray(weights, dtype=np.float32)
    route = np.ascontiguousarray(route, dtype=np.int64)
    out = np.empty_like(x)
    descriptors = (gate.address, up.address, down.address)
    arrays = (x.ctypes.data, route.ctypes.data, weights.ctypes.data, len(x), route.shape[1], out.ctypes.data)
    pool.run(_runner(), *descriptors, gate.experts, *arrays, _codes()[1].ctypes.data)
    return out
