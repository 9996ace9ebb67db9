"""Q2_0 in both lengths: codes as pair selectors."""

import torch
from torch import Tensor

from strata.ops.planes.bits import from_pair_selectors, low_first, pack_low_first, to_pair_selectors
from strata.ops.planes.layout import Layout, Plane


def _split(blocks: Tensor) -> tuple[Tensor, ...]:
    codes = low_first(blocks[:, 2:], 2).view(-1, 32)
    return to_pair_selectors(codes).view(len(blocks), -1), blocks[:, :2]


def _join(codes: Tensor, d: Tensor) -> Tensor:
    plain = from_pair_selectors(codes.reshape(-1, 8)).view(len(d), -1)
    return torch.cat([d, pack_low_first(plain, 2)], dim=1)


Q2_0 = Layout("Q2_0", (Plane("codes", 32, 8), Plane("d", 64, 2)), _split, _join)
Q2_0_128 = Layout("Q2_0_128", (Plane("codes", 32, 8), Plane("d", 128, 2)), _split, _join)
