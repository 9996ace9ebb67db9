"""Quantisation rehearsed in training: the routed experts' weights as their low-bit file types would store them.

The forward pass sees the stored values, the gradient passes straight through. Simple fits, one codeword search per
step: the exporter's own fit is a little better.
"""

import torch
from torch import Tensor

# IQ4_NL's levels (GGUF type 20).
LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Where the largest magnitude of a group is laid, in units of the grid's top level: least error on Gaussians.
_TOP = 1.03
_ROWS = 1 << 17  # vectors searched at once: their scores against 512 codewords are 256 MiB


@torch.no_grad()
def iq3_s(x: Tensor, grid: Tensor) -> Tensor:
    """Values of ``x`` [..., width] as IQ3_S holds them: groups of 32 under ``d * (1 + 2 s)``, s of 4 bits.

    ``grid`` is float32 [512, 4]. Signs are free in this type, so magnitudes alone are searched. A block of 256
    shares d; rows shorter than that form blocks across rows, as no shipped tensor does.
    """
    size = min(256, x.shape[-1])
    groups = x.float().reshape(-1, size // 32, 32)
    top = groups.abs().amax(-1) / (grid.max() * _TOP)
    d = (top.amax(-1, keepdim=True) / 31).half().float().clamp_min(1e-12)
    scale = d * (1 + 2 * ((top / d - 1) / 2).round().clamp(0, 15))
    magnitudes = (groups.abs() / scale[..., None]).view(-1, 4)
    half_norm = grid.square().sum(-1) / 2
    found = torch.cat([(part @ grid.t() - half_norm).argmax(-1) for part in magnitudes.split(_ROWS)])
    values = grid[found].view(groups.shape) * scale[..., None]
    return (values * torch.where(groups < 0, -1.0, 1.0)).view(x.shape)


@torch.no_grad()
def iq4_nl(x: Tensor) -> Tensor:
    """Values of ``x`` [..., width] as IQ4_NL holds them: groups of 32 under one half-precision scale."""
    groups = x.float().reshape(-1, 32)
    levels = torch.tensor(LEVELS, dtype=torch.float32, device=x.device)
    middles = (levels[1:] + levels[:-1]) / 2
    peak = groups.gather(1, groups.abs().argmax(1, keepdim=True))
    d = peak / levels[0]
    for _ in range(2):
        safe = torch.where(d == 0, 1.0, d)
        values = levels[torch.bucketize(groups / safe, middles)]
        d = (groups * values).sum(1, keepdim=True) / values.square().sum(1, keepdim=True)
    return (values * d.half().float()).view(x.shape)


def straight_through(weight: Tensor, stored: Tensor) -> Tensor:
    """The stored values going forward, the weight's own gradient going back."""
    return weight + (stored - weight.detach())
