"""Sigmoid, silu and softplus whose bytes depend on nothing but the number they are given.

torch finishes a tensor's last few numbers with scalar code that rounds differently (see `reference`), so that rows have
to be taken one at a time to have the bytes they have alone. These are made of IEEE operations in a fixed order
(`strata.experts.kernels.swiglu.exponential`), the same in every lane: one call takes all rows.

Bytes: 4 read and 4 written a number. Operands in float64, which only comparisons use, go through torch.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.swiglu import exponential

_ONE, _LINEAR = np.float32(1), np.float32(20)


def _sigmoid(x, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    for i in range(len(x)):
        y = _ONE / (_ONE + exponential(-x[i]))
        out[i] = y if x[i] == x[i] else x[i]  # a NaN stays one


def _silu(x, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    for i in range(len(x)):
        out[i] = x[i] / (_ONE + exponential(-x[i]))


def _softplus(x, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    # A few numbers a row: float64's functions one by one, rounded once.
    for i in range(len(x)):
        out[i] = x[i] if x[i] > _LINEAR else np.float32(math.log1p(math.exp(np.float64(x[i]))))


@cache
def _kernel(function: Callable[..., Any]) -> Any:
    return compiled(function, "void(float32[::1], float32[::1])")


def _apply(function: Callable[..., Any], plain: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    if x.dtype == torch.float64:
        return plain(x)
    x = x.contiguous()
    out = torch.empty_like(x)
    _kernel(function)(x.view(-1).numpy(), out.view(-1).numpy())
    return out


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of float32 of any shape, within 3 ulp."""
    return _apply(_sigmoid, torch.sigmoid, x)


def silu(x: Tensor) -> Tensor:
    """X * sigmoid(x) of float32 of any shape, within 3 ulp."""
    return _apply(_silu, functional.silu, x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) of float32 of any shape; x itself above 20."""
    return _apply(_softplus, functional.softplus, x)
