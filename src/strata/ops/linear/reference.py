"""Matrix product of token rows with a weight matrix.

A row of a window must not depend on its neighbours (DESIGN: a row's arithmetic never depends on how many rows share
its launch). BLAS picks another summation order for another number of rows, so up to WINDOW_ROWS rows are computed
one by one with a matrix-vector product; only longer prompt passes use a matrix-matrix product.
"""

import torch
from torch import Tensor

from strata.model.ops import WINDOW_ROWS


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Return `x @ w.T`.

    Args:
        x: float32 [T, K].
        w: float32 [N, K].

    Returns:
        float32 [T, N].
    """
    if x.shape[0] > WINDOW_ROWS:
        return x @ w.T
    return torch.stack([torch.mv(w, row) for row in x])
