"""Types of codewords: IQ3_XXS, IQ3_S, IQ2_XS, IQ2_S, IQ1_M.

Indices keep their low eight bits in one plane and the rest in another. Signs are all written out, eight for eight
weights also where the file keeps seven (+4% of IQ3_XXS, +5% of IQ2_XS), and lie as sign selectors.
"""

import torch
from torch import Tensor

from strata.ops.planes.bits import eighth_sign, from_sign_selectors, low_first, pack_low_first, to_sign_selectors
from strata.ops.planes.layout import Layout, Plane

_SIGNS = Plane("signs", 32, 4)
_D = Plane("d", 256, 2)


def _to_signs(bytes_: Tensor) -> Tensor:
    """A byte for eight weights, ``[n, 32] -> [n, 32]``."""
    return to_sign_selectors(low_first(bytes_, 1).view(-1, 32)).view(-1, 32)


def _from_signs(packed: Tensor) -> Tensor:
    return pack_low_first(from_sign_selectors(packed.reshape(-1, 4)), 1).view(-1, 32)


def _split_iq3_xxs(blocks: Tensor) -> tuple[Tensor, ...]:
    word = blocks[:, 66:].reshape(-1, 8, 4)
    wide = word.to(torch.int32)
    long = wide[..., 0] | (wide[..., 1] << 8) | (wide[..., 2] << 16) | ((wide[..., 3] & 15) << 24)
    shifts = torch.tensor([0, 7, 14, 21], dtype=torch.int32, device=blocks.device)
    seven = ((long[..., None] >> shifts) & 127).to(torch.uint8).view(-1, 32)
    return blocks[:, 2:66], _to_signs(eighth_sign(seven)), pack_low_first(word[..., 3] >> 4, 4), blocks[:, :2]


def _join_iq3_xxs(index: Tensor, signs: Tensor, scales: Tensor, d: Tensor) -> Tensor:
    seven = (_from_signs(signs) & 127).view(-1, 8, 4).to(torch.int32)
    long = seven[..., 0] | (seven[..., 1] << 7) | (seven[..., 2] << 14) | (seven[..., 3] << 21)
    bytes_ = torch.stack([(long >> shift) & 255 for shift in (0, 8, 16, 24)], dim=-1).to(torch.uint8)
    bytes_[..., 3] |= low_first(scales, 4) << 4
    return torch.cat([d, index, bytes_.view(-1, 32)], dim=1)


def _split_iq3_s(blocks: Tensor) -> tuple[Tensor, ...]:
    return blocks[:, 2:66], _to_signs(blocks[:, 74:106]), blocks[:, 66:74], blocks[:, 106:], blocks[:, :2]


def _join_iq3_s(index: Tensor, signs: Tensor, high: Tensor, scales: Tensor, d: Tensor) -> Tensor:
    return torch.cat([d, index, high, _from_signs(signs), scales], dim=1)


def _split_iq2_xs(blocks: Tensor) -> tuple[Tensor, ...]:
    low, high = blocks[:, 2:66].reshape(-1, 32, 2).unbind(2)
    return low, _to_signs(eighth_sign(high >> 1)), pack_low_first(high & 1, 1), blocks[:, 66:], blocks[:, :2]


def _join_iq2_xs(index: Tensor, signs: Tensor, high: Tensor, scales: Tensor, d: Tensor) -> Tensor:
    upper = low_first(high, 1) | ((_from_signs(signs) & 127) << 1)
    return torch.cat([d, torch.stack([index, upper], dim=2).flatten(1), scales], dim=1)


def _split_iq2_s(blocks: Tensor) -> tuple[Tensor, ...]:
    return blocks[:, 2:34], _to_signs(blocks[:, 34:66]), blocks[:, 66:74], blocks[:, 74:], blocks[:, :2]


def _join_iq2_s(index: Tensor, signs: Tensor, high: Tensor, scales: Tensor, d: Tensor) -> Tensor:
    return torch.cat([d, index, _from_signs(signs), high, scales], dim=1)


def _split_iq1_m(blocks: Tensor) -> tuple[Tensor, ...]:
    low, high = blocks[:, 48:].reshape(-1, 4, 2).unbind(2)
    first, second = low & 7, (low >> 3) & 7
    third, fourth = (low >> 6) | ((high & 1) << 2), (high >> 1) & 7
    scales = torch.stack([first | (second << 3), third | (fourth << 3)], dim=2).flatten(1)
    return blocks[:, :32], blocks[:, 32:48], scales, pack_low_first(high >> 4, 4)


def _join_iq1_m(index: Tensor, nibbles: Tensor, scales: Tensor, d: Tensor) -> Tensor:
    (a, b), top = scales.view(-1, 4, 2).unbind(2), low_first(d, 4)
    first, second, third, fourth = a & 7, a >> 3, b & 7, b >> 3
    low = first | (second << 3) | (third << 6)
    high = (third >> 2) | (fourth << 1) | (top << 4)
    return torch.cat([index, nibbles, torch.stack([low, high], dim=2).flatten(1)], dim=1)


IQ3_XXS = Layout("IQ3_XXS", (Plane("index", 32, 8), _SIGNS, Plane("scales", 64, 1), _D), _split_iq3_xxs, _join_iq3_xxs)
IQ3_S = Layout(
    "IQ3_S",
    (Plane("index", 32, 8), _SIGNS, Plane("high", 32, 1), Plane("scales", 64, 1), _D),
    _split_iq3_s,
    _join_iq3_s,
)
IQ2_XS = Layout(
    "IQ2_XS",
    (Plane("index", 32, 4), _SIGNS, Plane("high", 64, 1), Plane("scales", 32, 1), _D),
    _split_iq2_xs,
    _join_iq2_xs,
)
IQ2_S = Layout(
    "IQ2_S",
    (Plane("index", 32, 4), _SIGNS, Plane("high", 32, 1), Plane("scales", 32, 1), _D),
    _split_iq2_s,
    _join_iq2_s,
)
IQ1_M = Layout(
    "IQ1_M", (Plane("index", 32, 4), Plane("nibbles", 32, 2), Plane("scales", 32, 1), _D), _split_iq1_m, _join_iq1_m
)
