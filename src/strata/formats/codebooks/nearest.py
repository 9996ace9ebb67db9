"""Nearest codeword, by trying all of them."""

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32

_ROWS = 1024  # scores of 1024 vectors against 1024 codewords are 4 MiB: they stay in cache


def nearest(x: F32, grid: F32) -> NDArray[np.intp]:
    """Index of the codeword at least squared distance from every vector.

    ``|x - g|^2 = |x|^2 - 2 (x g - |g|^2 / 2)``, so the codeword with the highest ``x g - |g|^2 / 2`` is nearest: one
    matrix product against the grid with that constant as one more column.

    Args:
        x: ``float32 [..., k]``.
        grid: ``float32 [codewords, k]``.

    Returns:
        ``intp [...]``.
    """
    width = grid.shape[1]
    vectors = np.ones((x.size // width, width + 1), dtype=np.float32)
    vectors[:, :width] = x.reshape(-1, width)
    columns = np.concatenate([grid, -(grid * grid).sum(axis=1, keepdims=True) / 2], axis=1).T.copy()
    found = np.empty(len(vectors), dtype=np.intp)
    for start in range(0, len(vectors), _ROWS):
        found[start : start + _ROWS] = np.argmax(vectors[start : start + _ROWS] @ columns, axis=1)
    return found.reshape(x.shape[:-1])
