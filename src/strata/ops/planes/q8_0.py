"""Q8_0: each block's first and last 16 codes in planes of their own, so that one load of a warp is contiguous."""

import torch
from torch import Tensor

from strata.ops.planes.layout import Layout, Plane


def _split(blocks: Tensor) -> tuple[Tensor, ...]:
    return blocks[:, 2:18], blocks[:, 18:], blocks[:, :2]


def _join(low: Tensor, high: Tensor, d: Tensor) -> Tensor:
    return torch.cat([d, low, high], dim=1)


Q8_0 = Layout("Q8_0", (Plane("low", 32, 16), Plane("high", 32, 16), Plane("d", 32, 2)), _split, _join)
