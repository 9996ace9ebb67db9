"""The layout of a matrix task: one matrix times some rows of activations, cut anywhere between its outputs.

A task's function is ``int64 function(int64 task, int64 first, int64 last)``, computes outputs ``first`` to ``last`` for
all rows, touches nothing else, and returns 0.

| word | what |
|---|---|
| 0 | address of the first row of weights |
| 1 | bytes from one row of weights to the next |
| 2 | address behind the last byte that may be read |
| 3 | inputs K |
| 4 | rows of activations |
| 5 | address of their addresses: records for a quantised matrix, float32 numbers for a float one |
| 6 | address of the addresses of the rows' outputs, float32 |
| 7 | address of the scale that multiplies finished sums, float32 |
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8

WEIGHTS, STRIDE, LIMIT, WIDTH, ROWS, INPUTS, OUTPUTS, SCALE = range(0, 64, 8)
TASK = 64  # bytes

ROWS_TOGETHER = 8
"""Rows of activations that meet a row of weights while it is decoded; a task with more passes over its part again."""

_ONE = np.ones(1, dtype=np.float32)


def addresses(array: NDArray[Any]) -> NDArray[np.int64]:
    """Addresses of an array's rows along its first axis: ``int64 [n]``."""
    return array.ctypes.data + array.strides[0] * np.arange(len(array), dtype=np.int64)


def run_rows(code: Any, raw: U8, width: int, inputs: NDArray[Any], out: F32, part: tuple[int, int]) -> None:
    """Run a matrix task in this thread.

    Args:
        code: its function.
        raw: ``uint8 [N, row_bytes]``, contiguous.
        width: inputs K.
        inputs: rows of activations along the first axis, as the function reads them.
        out: ``float32 [T, N]``, contiguous.
        part: first output, and the one behind the last.
    """
    at, to = addresses(inputs), addresses(out)
    words = [raw.ctypes.data, raw.shape[1], raw.ctypes.data + raw.nbytes, width, len(at)]
    task = np.array([*words, at.ctypes.data, to.ctypes.data, _ONE.ctypes.data], dtype=np.int64)
    if part[1] > part[0]:
        code.ctypes(task.ctypes.data, *part)
