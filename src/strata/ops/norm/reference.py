"""Root-mean-square norms (model spec, section 3). Weights already contain the one of "1 + w"."""

import torch
from torch import Tensor


def rms(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """Normalise the last axis of `x` [..., D] and scale it by `w` [D]."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rms_grouped(x: Tensor, w: Tensor, groups: int, eps: float) -> Tensor:
    """Normalise each of `groups` equal parts of the last axis on its own; `w` [D] spans the whole axis."""
    parts = x.unflatten(-1, (groups, -1))
    return (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)).flatten(-2) * w
