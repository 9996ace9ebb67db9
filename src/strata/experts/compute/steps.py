"""The steps between products, as functions of tasks: quantising rows, SwiGLU, and the weighted sum of experts."""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from strata.experts.compute.matrix import ADDRESS, EACH, END, OFFSET, ORDER, PLACES, ROW, SCALE_STEP, SCALES, WIDTH
from strata.experts.kernels.activations import fill
from strata.experts.kernels.cached import task_function
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import call, carray, floats_at, peek, poke
from strata.experts.kernels.record import GROUP, RECORD
from strata.experts.kernels.swiglu import glu
from strata.experts.kernels.task import INPUTS, LIMIT, OUTPUTS, ROWS, SCALE, STRIDE, TASK, WEIGHTS
from strata.experts.kernels.task import WIDTH as TASK_WIDTH
from strata.experts.pool.atomics import add, store
from strata.experts.pool.region import AFTER, ITEM

# An expert's task: the gate's matrix task, the up matrix's, and how h is made ready for the down matrix.
GATE_CODE, UP_CODE, GATE, UP = 0, 8, 16, 16 + TASK
DONE, ORDER_AT, OFFSET_AT, RECORDS = range(16 + 2 * TASK, 16 + 2 * TASK + 32, 8)
DOWN = 16 + 2 * TASK + 32  # the down matrix's, for lists that hold all three
EXPERT_TASK = 256

# What DONE is the address of, for each expert on lines of its own: outputs of h that are done, how many there are, and,
# on another line, for many look at it, whether h is ready.
HAVE, OF, READY, COUNTER = 0, 8, 64, 128

# A quantising task: rows of float32 numbers that lie a stride apart, and addresses of their records.
X, X_STRIDE, X_WIDTH, X_ORDER, X_OFFSET, X_RECORDS = range(0, 48, 8)

# A combining task.
C_ROWS, C_WEIGHTS, C_OUT, C_TOPK, C_WIDTH = range(0, 40, 8)


@njit
def records_bytes(descriptor):
    """Bytes of a row's activations as a matrix takes them; 0 if it takes float32 numbers as they are."""
    if peek(descriptor + ORDER) == 0:
        return 0
    return (peek(descriptor + WIDTH) + GROUP - 1) // GROUP * RECORD


@njit
def matrix_task(to, descriptor, expert, rows, inputs, outputs):
    """Write the task of one expert's matrix."""
    places = peek(descriptor + PLACES)
    if places != 0:
        poke(to + WEIGHTS, peek(places + 8 * expert))
    else:
        poke(to + WEIGHTS, peek(descriptor + ADDRESS) + expert * peek(descriptor + EACH))
    poke(to + STRIDE, peek(descriptor + ROW))
    poke(to + LIMIT, peek(descriptor + END))
    poke(to + TASK_WIDTH, peek(descriptor + WIDTH))
    poke(to + ROWS, rows)
    poke(to + INPUTS, inputs)
    poke(to + OUTPUTS, outputs)
    poke(to + SCALE, peek(descriptor + SCALES) + expert * peek(descriptor + SCALE_STEP))


@njit
def quantising_task(to, descriptor, x, records):
    """Write the task that makes rows ready for a matrix; ``records`` is the address of their records' addresses."""
    width = peek(descriptor + WIDTH)
    poke(to + X, x)
    poke(to + X_STRIDE, 4 * width)
    poke(to + X_WIDTH, width)
    poke(to + X_ORDER, peek(descriptor + ORDER))
    poke(to + X_OFFSET, peek(descriptor + OFFSET))
    poke(to + X_RECORDS, records)


@njit
def cut(items, code, task, count, part):
    """Cut ``count`` outputs or rows into items of ``part``, written from an address on; returns how many."""
    parts = (count + part - 1) // part
    for i in range(parts):
        at = items + i * ITEM
        poke(at, code)
        poke(at + 8, task)
        poke(at + 16, part * i)
        poke(at + 24, min(part * (i + 1), count))
        poke(at + AFTER, 0)
    return parts


@njit
def by_expert(route, slots, starts, order):
    """Sort slots by their expert, counting; returns how many experts are visited.

    Args:
        route: address of the slots' experts.
        slots: how many.
        starts: zeros, ``int64 [E + 1]``; becomes where each expert's slots begin.
        order: becomes the slots, ``int64 [slots]``.
    """
    for i in range(slots):
        starts[peek(route + 8 * i) + 1] += 1
    visited = 0
    for e in range(len(starts) - 1):
        visited += 1 if starts[e + 1] > 0 else 0
        starts[e + 1] += starts[e]
    place = starts.copy()
    for i in range(slots):
        e = peek(route + 8 * i)
        order[place[e]] = i
        place[e] += 1
    return visited


@cache
def quantiser() -> Any:
    """Rows ``first`` to ``last`` of a quantising task."""
    mark = fingerprint()

    def run(task, first, last):
        if len(mark) == 0:  # see `worker_loop`
            return 1
        x, stride, width = peek(task + X), peek(task + X_STRIDE), peek(task + X_WIDTH)
        order, offset, records = peek(task + X_ORDER), peek(task + X_OFFSET), peek(task + X_RECORDS)
        for t in range(first, last):
            fill(x + t * stride, width, order, offset, peek(records + 8 * t))
        return 0

    return task_function(run)


@cache
def gate_up() -> Any:
    """Outputs ``first`` to ``last`` of an expert's h; who finishes the last of them quantises h for the down matrix."""
    mark = fingerprint()

    def run(task, first, last):
        if len(mark) == 0:
            return 1
        call(peek(task + GATE_CODE), task + GATE, first, last)
        call(peek(task + UP_CODE), task + UP, first, last)
        rows, outputs, ups = peek(task + GATE + ROWS), peek(task + GATE + OUTPUTS), peek(task + UP + OUTPUTS)
        for t in range(rows):
            glu(peek(outputs + 8 * t) + 4 * first, peek(ups + 8 * t) + 4 * first, last - first)
        done = peek(task + DONE)
        width = peek(done + OF)
        if add(done + HAVE, last - first) + last - first == width:
            if peek(task + ORDER_AT) != 0:
                for t in range(rows):
                    to = peek(peek(task + RECORDS) + 8 * t)
                    fill(peek(outputs + 8 * t), width, peek(task + ORDER_AT), peek(task + OFFSET_AT), to)
            store(done + READY, 1)
        return 0

    return task_function(run)


@cache
def combiner() -> Any:
    """Rows ``first`` to ``last`` of a combining task: weighted sums in the router's order."""
    mark = fingerprint()

    def run(task, first, last):
        if len(mark) == 0:
            return 1
        topk, width = peek(task + C_TOPK), peek(task + C_WIDTH)
        for t in range(first, last):
            out = carray(floats_at(peek(task + C_OUT) + 4 * width * t), width)
            weights = carray(floats_at(peek(task + C_WEIGHTS) + 4 * topk * t), topk)
            for i in range(width):
                out[i] = np.float32(0)
            for j in range(topk):
                row = carray(floats_at(peek(task + C_ROWS) + 4 * width * (topk * t + j)), width)
                for i in range(width):
                    out[i] = out[i] + weights[j] * row[i]
        return 0

    return task_function(run)
