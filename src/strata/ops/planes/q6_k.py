"""Q6_K: low nibbles as in Q4_1, top bits as pair planes. Codes are stored less 32, in six bits of two's complement."""

import torch
from torch import Tensor

from strata.ops.planes.bits import (
    from_pair_planes,
    halves_of_bytes,
    low_first,
    pack_halves_of_bytes,
    pack_low_first,
    to_pair_planes,
)
from strata.ops.planes.layout import Layout, Plane


def _split(blocks: Tensor) -> tuple[Tensor, ...]:
    low = halves_of_bytes(blocks[:, :128].reshape(-1, 64)).view(-1, 32)
    top = low_first(blocks[:, 128:192], 2).view(-1, 2, 32, 4).transpose(2, 3).reshape(-1, 32)
    codes = (low | (top << 4)) ^ 32
    return (
        pack_halves_of_bytes(codes & 15).view(-1, 128),
        to_pair_planes(codes >> 4).view(-1, 64),
        blocks[:, 192:208],
        blocks[:, 208:],
    )


def _join(low: Tensor, top: Tensor, steps: Tensor, d: Tensor) -> Tensor:
    codes = (halves_of_bytes(low.reshape(-1, 16)) | (from_pair_planes(top.reshape(-1, 8)) << 4)) ^ 32
    nibbles = pack_halves_of_bytes((codes & 15).view(-1, 128)).view(-1, 128)
    tops = pack_low_first((codes >> 4).view(-1, 2, 4, 32).transpose(2, 3).reshape(-1, 256), 2)
    return torch.cat([nibbles, tops, steps, d], dim=1)


Q6_K = Layout(
    "Q6_K",
    (Plane("low", 32, 16), Plane("top", 32, 8), Plane("steps", 32, 2), Plane("d", 256, 2)),
    _split,
    _join,
)
