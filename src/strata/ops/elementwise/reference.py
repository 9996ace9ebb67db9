"""Exponentials and angles whose bytes do not depend on a row's neighbours.

torch computes these with vector instructions and finishes the last few numbers of a tensor with scalar code that
rounds differently. Which numbers are finished so depends on how many rows there are, and in a large tensor on where it
is cut for the threads. So rows go together only where all of them fill whole vectors and nothing is cut, else alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

VECTOR = 64
"""Numbers that fill a whole step of every vector loop: two registers of 16 with AVX-512, fewer elsewhere."""

UNCUT = 32768
"""torch cuts no tensor smaller than this for its threads."""


def _row_by_row(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    width = x[0].numel() if x.shape[0] else 0
    together = max(1, (UNCUT - 1) // width) if width and width % VECTOR == 0 else 1
    if x.shape[0] <= together:
        return f(x.contiguous())
    return torch.cat([f(rows) for rows in x.contiguous().split(together)])


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of float32 [T, ...]."""
    return _row_by_row(torch.sigmoid, x)


def silu(x: Tensor) -> Tensor:
    """X * sigmoid(x) of float32 [T, ...]."""
    return _row_by_row(functional.silu, x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) of float32 [T, ...]; x itself above 20."""
    return _row_by_row(functional.softplus, x)


def cos(x: Tensor) -> Tensor:
    """Cosine of float32 [T, ...]."""
    return _row_by_row(torch.cos, x)


def sin(x: Tensor) -> Tensor:
    """Sine of float32 [T, ...]."""
    return _row_by_row(torch.sin, x)
