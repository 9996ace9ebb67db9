"""Exponentials and angles whose bytes do not depend on a row's neighbours.

torch computes these with vector instructions and finishes the last few numbers of a tensor with scalar code that
rounds differently. Where a number falls depends on how many rows there are. So the rows of a window are computed
one by one, like everything else in it; a prompt pass takes all rows at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from strata.model.ops import WINDOW_ROWS


def _by_row(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    if 1 < x.shape[0] <= WINDOW_ROWS:
        return torch.stack([f(row) for row in x])
    return f(x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of float32 [T, ...]."""
    return _by_row(torch.sigmoid, x)


def silu(x: Tensor) -> Tensor:
    """X * sigmoid(x) of float32 [T, ...]."""
    return _by_row(functional.silu, x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) of float32 [T, ...]; x itself above 20."""
    return _by_row(functional.softplus, x)


def cos(x: Tensor) -> Tensor:
    """Cosine of float32 [T, ...]."""
    return _by_row(torch.cos, x)


def sin(x: Tensor) -> Tensor:
    """Sine of float32 [T, ...]."""
    return _by_row(torch.sin, x)
