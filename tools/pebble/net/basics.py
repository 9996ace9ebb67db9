"""Norms, rotary angles and shifts: the pieces every part of the forward pass shares."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # torch's own custom

from pebble.shape import Shape


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of the "one plus w" kind over the last axis, in float32, cast back at the end (section 3)."""
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return (y * (1 + weight)).to(x.dtype)


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` in the activation's precision; ``weight`` is [outputs, inputs] in float32."""
    return x @ weight.to(x.dtype).t()


def padded(weights: list[Tensor], multiple: int = 8) -> Tensor:
    """Matrices over one input stacked into one, with zero rows up to a multiple that suits the matrix units."""
    rows = sum(w.shape[0] for w in weights)
    filler = weights[0].new_zeros(-rows % multiple, weights[0].shape[1])
    return torch.cat([*weights, filler])


def shift(x: Tensor, position: Tensor, by: int) -> Tensor:
    """Row ``t - by`` of the same sequence at row ``t``; zeros before its start. ``x`` is [N, C]."""
    moved = F.pad(x, (0, 0, by, 0))[: x.shape[0]]
    return torch.where((position >= by)[:, None], moved, 0)


def angles(shape: Shape, position: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [N, rotated / 2], for text positions (section 8)."""
    half = shape.rotated // 2
    exponent = torch.arange(half, device=position.device, dtype=torch.float64) / half
    a = position[:, None].double() * shape.theta**-exponent
    return a.cos().float(), a.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, NEOX pairs, on the first dimensions of ``x`` [N, heads, width]."""
    half = cos.shape[-1]
    first, second, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    c, s = cos[:, None], sin[:, None]
    return torch.cat([(first * c - second * s).to(x.dtype), (second * c + first * s).to(x.dtype), rest], -1)
