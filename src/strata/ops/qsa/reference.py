"""Sparse attention of rows: the formula, put together from `select` and `attend` (model spec, sections 7.2, 7.3)."""

import torch
from torch import Tensor

from strata.ops.qsa.attend import attend_row
from strata.ops.qsa.select import select


def attend(q: Tensor, iq: Tensor, k: Tensor, v: Tensor, keys: Tensor, blocks: int, ratio: int) -> Tensor:
    """As `kernel.attend`, in torch, for float32 or float64."""
    start, outputs = k.shape[0] - q.shape[0], []
    for row in range(q.shape[0]):
        seen, one = start + row + 1, slice(row, row + 1)
        allowed = select(iq[one], keys[: seen // ratio], seen - 1, blocks, ratio)
        outputs.append(attend_row(q[one], k[:seen], v[:seen], allowed))
    return torch.cat(outputs)
