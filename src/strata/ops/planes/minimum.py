"""Types with a minimum: Q4_1, Q5_1, Q4_K, Q5_K.

Nibbles keep the order of Q4_1 (byte j: weight j low, weight j + 16 high); fifth bits lie as bit planes. The 6-bit
scale and minimum of a K block become a byte each.
"""

import torch
from torch import Tensor

from strata.ops.planes.bits import (
    from_bit_planes,
    halves_of_bytes,
    low_first,
    pack_halves_of_bytes,
    pack_low_first,
    to_bit_planes,
)
from strata.ops.planes.layout import Layout, Plane

_CODES = Plane("codes", 32, 16)
_HIGH = Plane("high", 32, 4)


def _split_q4_1(blocks: Tensor) -> tuple[Tensor, ...]:
    return blocks[:, 4:], blocks[:, :4]


def _join_q4_1(codes: Tensor, dm: Tensor) -> Tensor:
    return torch.cat([dm, codes], dim=1)


def _split_q5_1(blocks: Tensor) -> tuple[Tensor, ...]:
    return blocks[:, 8:], to_bit_planes(low_first(blocks[:, 4:8], 1)), blocks[:, :4]


def _join_q5_1(codes: Tensor, high: Tensor, dm: Tensor) -> Tensor:
    return torch.cat([dm, pack_low_first(from_bit_planes(high), 1), codes], dim=1)


def _split_nibbles(packed: Tensor) -> Tensor:
    """128 bytes, each run of 32 holding two blocks, to four-bit codes block by block: ``[n, 128] -> [8 n, 16]``."""
    return pack_halves_of_bytes(halves_of_bytes(packed.reshape(-1, 32)).view(-1, 32))


def _join_nibbles(codes: Tensor) -> Tensor:
    return pack_halves_of_bytes(halves_of_bytes(codes.reshape(-1, 16)).view(-1, 64)).view(-1, 128)


def _split_scales(packed: Tensor) -> Tensor:
    """12 bytes of 6-bit scales and minimums to pairs of bytes, block by block: ``[n, 12] -> [n, 16]``."""
    a, b, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = torch.cat([a & 63, (low & 15) | ((a >> 2) & 0x30)], dim=1)
    minimum = torch.cat([b & 63, (low >> 4) | ((b >> 2) & 0x30)], dim=1)
    return torch.stack([scale, minimum], dim=2).flatten(1)


def _join_scales(pairs: Tensor) -> Tensor:
    scale, minimum = pairs.view(-1, 2, 4, 2).unbind(3)
    a = scale[:, 0] | ((scale[:, 1] << 2) & 0xC0)
    b = minimum[:, 0] | ((minimum[:, 1] << 2) & 0xC0)
    return torch.cat([a, b, (scale[:, 1] & 15) | (minimum[:, 1] << 4)], dim=1)


def _split_q4_k(blocks: Tensor) -> tuple[Tensor, ...]:
    return _split_nibbles(blocks[:, 16:]).view(-1, 128), _split_scales(blocks[:, 4:16]), blocks[:, :4]


def _join_q4_k(codes: Tensor, scales: Tensor, dm: Tensor) -> Tensor:
    return torch.cat([dm, _join_scales(scales), _join_nibbles(codes)], dim=1)


def _split_q5_k(blocks: Tensor) -> tuple[Tensor, ...]:
    bits = low_first(blocks[:, 16:48], 1).view(-1, 32, 8).transpose(1, 2).reshape(-1, 32)
    codes = _split_nibbles(blocks[:, 48:]).view(-1, 128)
    return codes, to_bit_planes(bits).view(-1, 32), _split_scales(blocks[:, 4:16]), blocks[:, :4]


def _join_q5_k(codes: Tensor, high: Tensor, scales: Tensor, dm: Tensor) -> Tensor:
    bits = from_bit_planes(high.reshape(-1, 4)).view(-1, 8, 32).transpose(1, 2).reshape(-1, 256)
    return torch.cat([dm, _join_scales(scales), pack_low_first(bits, 1), _join_nibbles(codes)], dim=1)


Q4_1 = Layout("Q4_1", (_CODES, Plane("d, m", 32, 4)), _split_q4_1, _join_q4_1)
Q5_1 = Layout("Q5_1", (_CODES, _HIGH, Plane("d, m", 32, 4)), _split_q5_1, _join_q5_1)
Q4_K = Layout("Q4_K", (_CODES, Plane("scale, minimum", 32, 2), Plane("d, dmin", 256, 4)), _split_q4_k, _join_q4_k)
Q5_K = Layout(
    "Q5_K", (_CODES, _HIGH, Plane("scale, minimum", 32, 2), Plane("d, dmin", 256, 4)), _split_q5_k, _join_q5_k
)
