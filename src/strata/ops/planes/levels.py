"""Types whose nibble is an index into 16 levels: IQ4_NL, IQ4_XS, MXFP4, NVFP4. Nibbles lie as selectors."""

import torch
from torch import Tensor

from strata.ops.planes.bits import (
    from_selectors,
    halves_of_bytes,
    low_first,
    pack_halves_of_bytes,
    pack_low_first,
    to_selectors,
)
from strata.ops.planes.layout import Layout, Plane

_CODES = Plane("codes", 32, 16)


def _split_scaled(blocks: Tensor) -> tuple[Tensor, ...]:
    """A scale of any width, then 16 bytes of nibbles."""
    return to_selectors(halves_of_bytes(blocks[:, -16:])), blocks[:, :-16]


def _join_scaled(codes: Tensor, scale: Tensor) -> Tensor:
    return torch.cat([scale, pack_halves_of_bytes(from_selectors(codes))], dim=1)


def _split_iq4_xs(blocks: Tensor) -> tuple[Tensor, ...]:
    codes = to_selectors(halves_of_bytes(blocks[:, 8:].reshape(-1, 16))).view(-1, 128)
    scale = low_first(blocks[:, 4:8], 4) | (low_first(blocks[:, 2:4], 2) << 4)
    return codes, scale - 32, blocks[:, :2]  # as two's complement: -32..31


def _join_iq4_xs(codes: Tensor, scale: Tensor, d: Tensor) -> Tensor:
    six = scale + 32
    nibbles = pack_halves_of_bytes(from_selectors(codes.reshape(-1, 16))).view(-1, 128)
    return torch.cat([d, pack_low_first(six >> 4, 2), pack_low_first(six & 15, 4), nibbles], dim=1)


def _split_nvfp4(blocks: Tensor) -> tuple[Tensor, ...]:
    codes = halves_of_bytes(blocks[:, 4:].reshape(-1, 8)).view(-1, 32)
    return to_selectors(codes).view(-1, 32), blocks[:, :4]


def _join_nvfp4(codes: Tensor, scales: Tensor) -> Tensor:
    nibbles = pack_halves_of_bytes(from_selectors(codes.reshape(-1, 16)).view(-1, 16))
    return torch.cat([scales, nibbles.view(-1, 32)], dim=1)


IQ4_NL = Layout("IQ4_NL", (_CODES, Plane("d", 32, 2)), _split_scaled, _join_scaled)
MXFP4 = Layout("MXFP4", (_CODES, Plane("exponent", 32, 1)), _split_scaled, _join_scaled)
NVFP4 = Layout("NVFP4", (_CODES, Plane("scales", 32, 2)), _split_nvfp4, _join_nvfp4)
IQ4_XS = Layout("IQ4_XS", (_CODES, Plane("scale", 32, 1), Plane("d", 256, 2)), _split_iq4_xs, _join_iq4_xs)
