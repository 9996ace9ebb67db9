"""Rotary embedding in NEOX layout, with interleaved M-RoPE sections and YaRN (model spec, section 8)."""

import math

import torch
from torch import Tensor

from strata.model.config import Rope
from strata.ops.elementwise.reference import cos, sin


def frequencies(rope: Rope) -> tuple[Tensor, float]:
    """Inverse frequencies float32 [dims/2], and the factor on cos and sin (1 without YaRN; section 8.1)."""
    half = rope.dims // 2
    inv = 1.0 / rope.theta ** (torch.arange(0, rope.dims, 2, dtype=torch.float32) / rope.dims)
    if rope.scale == 1.0:
        return inv, 1.0

    def turn(beta: float) -> float:
        """Index of the frequency that makes `beta` turns over the trained context."""
        return rope.dims * math.log(rope.original_context / (2 * math.pi * beta)) / (2 * math.log(rope.theta))

    low = max(math.floor(turn(rope.beta_fast)), 0)
    high = min(math.ceil(turn(rope.beta_slow)), rope.dims - 1)
    ramp = ((torch.arange(half, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    return inv * (1 - ramp) + inv / rope.scale * ramp, rope.attention * (1 + 0.1 * math.log(rope.scale))


def axis_of_frequency(rope: Rope) -> Tensor:
    """Which of the positions (t, h, w) turns each frequency: int64 [dims/2]. Equal positions make it plain rope."""
    axis = torch.zeros(rope.dims // 2, dtype=torch.int64)
    for which in (1, 2):
        axis[which : 3 * rope.sections[which] : 3] = which
    return axis


def cos_sin(positions: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotation angles.

    Args:
        positions: int64 [T, 3], the (t, h, w) position of each row.
        rope: the model's rotary settings.

    Returns:
        Two float32 [T, dims/2].
    """
    inv, factor = frequencies(rope)
    angles = positions[:, axis_of_frequency(rope)].to(torch.float32) * inv
    return cos(angles) * factor, sin(angles) * factor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first 2*half dimensions of each head.

    Args:
        x: float32 [T, heads, width].
        cos: float32 [T, half], pair (i, i + half) is turned by angle i.
        sin: as cos.

    Returns:
        float32 [T, heads, width]; dimensions past 2*half pass through.
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    x1, x2 = x[..., :half], x[..., half : 2 * half]
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin, x[..., 2 * half :]), -1)
