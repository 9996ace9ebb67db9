"""Matrix product whose bytes depend on nothing but the row and the matrix.

BLAS picks another order of additions for another number of rows, another processor and another number of threads.
Here a quantised matrix takes activations of 8 bits and a float matrix takes them as they are, each in the order of
docs/numerics.md, whatever the number of rows and threads. Matrices are read as they are stored.
"""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from strata.experts import compute
from strata.experts.compute import Stored
from strata.experts.errors import KernelError
from strata.experts.kernels import float_product
from strata.formats import by_name
from strata.model.weights import Matrix, Quantised
from strata.ops import workers
from strata.ops.linear import reference

_F32 = by_name("F32")
_STORED: "WeakKeyDictionary[Quantised, Stored]" = WeakKeyDictionary()


def linear(x: Tensor, w: Matrix) -> Tensor:
    """Return `x @ w.T`.

    Args:
        x: float32 [T, K].
        w: [N, K]; a float32 tensor must be contiguous.

    Returns:
        float32 [T, N]. Operands in float64, which only comparisons use, go through the plain formula.

    Raises:
        KernelError: the operands do not fit together.
    """
    if isinstance(w, Tensor):
        if w.dtype == torch.float64:
            return reference.linear(x, w)
        return torch.from_numpy(float_product(_F32, w.numpy().view(np.uint8), x.contiguous().numpy()))
    matrix = stored(w)
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != matrix.k or not len(x) or matrix.experts != 1:
        raise KernelError(f"a matrix {list(w.shape)} does not go with activations {x.dtype} {list(x.shape)}")
    x = x.contiguous()
    out = torch.empty((len(x), matrix.n))
    compute.linear(workers.current(), matrix, x.data_ptr(), len(x), out.data_ptr())
    return out


def stored(w: Quantised) -> Stored:
    """What compiled code needs to know of a matrix; made once."""
    found = _STORED.get(w)
    if found is None:
        found = _STORED[w] = Stored(w.type, w.raw, w.scale)
    return found
