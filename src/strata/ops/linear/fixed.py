"""Matrix product whose bytes depend on nothing but the row and the matrix.

BLAS picks another order of additions for another number of rows, another processor and another number of threads.
This one is `strata.experts.kernels.floats`: 16 lanes over K, then a halving tree, whatever the number of rows. Up to 8
rows cost about as much as one, because each row of weights is read once and meets all of them in the cache.
"""

import numpy as np
import torch
from torch import Tensor

from strata.experts.kernels import float_product
from strata.formats import by_name
from strata.ops.linear import reference

_F32 = by_name("F32")


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Return `x @ w.T`.

    Args:
        x: float32 [T, K].
        w: float32 [N, K], contiguous.

    Returns:
        float32 [T, N]. Operands in float64, which only comparisons use, go through the plain formula.
    """
    if w.dtype == torch.float64:
        return reference.linear(x, w)
    return torch.from_numpy(float_product(_F32, w.numpy().view(np.uint8), x.contiguous().numpy()))
