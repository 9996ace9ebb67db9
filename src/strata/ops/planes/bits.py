"""Codes in and out of bytes, in torch, so that the same code packs on the CPU and on a GPU.

Codes are ``uint8 [n, 32]``, one block a row. Every plane keeps the codes of four neighbouring weights where one or two
instructions turn them into the four bytes of a 32-bit word; the orders below differ in how that is done. Word j is
weights 4 j to 4 j + 3.
"""

import torch
from torch import Tensor


def low_first(packed: Tensor, bits: int) -> Tensor:
    """``uint8 [..., k] -> [..., k * 8 / bits]``: the codes of a byte are neighbours, lowest bits first."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[..., None] >> shifts) & ((1 << bits) - 1)).flatten(-2)


def pack_low_first(codes: Tensor, bits: int) -> Tensor:
    """The inverse of `low_first`."""
    groups = codes.unflatten(-1, (-1, 8 // bits))
    packed = groups[..., 0].clone()
    for i in range(1, 8 // bits):
        packed |= groups[..., i] << (i * bits)
    return packed


def halves_of_bytes(packed: Tensor) -> Tensor:
    """``uint8 [..., k] -> [..., 2 k]``: all low nibbles, then all high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def pack_halves_of_bytes(codes: Tensor) -> Tensor:
    """The inverse of `halves_of_bytes`."""
    low, high = codes.chunk(2, dim=-1)
    return low | (high << 4)


def to_selectors(codes: Tensor) -> Tensor:
    """Nibbles as selectors of a byte permutation: ``[n, 32] -> [n, 16]``.

    Bits 0-15 of word j hold the nibbles of word j of the block, bits 16-31 those of word j + 4.
    """
    return pack_low_first(codes.view(-1, 2, 4, 4).transpose(1, 2).reshape(-1, 32), 4)


def from_selectors(packed: Tensor) -> Tensor:
    """The inverse of `to_selectors`."""
    return low_first(packed, 4).view(-1, 4, 2, 4).transpose(1, 2).reshape(-1, 32)


def to_bit_planes(bits: Tensor) -> Tensor:
    """One bit a weight, ``[n, 32] -> [n, 4]``: ``(h >> j) & 0x01010101`` is word j."""
    return pack_low_first(bits.view(-1, 8, 4).transpose(1, 2).reshape(-1, 32), 1)


def from_bit_planes(packed: Tensor) -> Tensor:
    """The inverse of `to_bit_planes`."""
    return low_first(packed, 1).view(-1, 4, 8).transpose(1, 2).reshape(-1, 32)


def to_pair_planes(codes: Tensor) -> Tensor:
    """Two bits a weight, ``[n, 32] -> [n, 8]``: ``(h >> 2 j) & 0x03030303`` is word j; words 4-7 in a second one."""
    return pack_low_first(codes.view(-1, 2, 4, 4).transpose(2, 3).reshape(-1, 32), 2)


def from_pair_planes(packed: Tensor) -> Tensor:
    """The inverse of `to_pair_planes`."""
    return low_first(packed, 2).view(-1, 2, 4, 4).transpose(2, 3).reshape(-1, 32)


def to_pair_selectors(codes: Tensor) -> Tensor:
    """Two bits a weight as selectors, ``[n, 32] -> [n, 8]``.

    ``(v >> 2 k) & 0x33333333`` of word g holds the selectors of words 4 g + 2 k (low half) and 4 g + 2 k + 1.
    """
    return pack_low_first(codes.view(-1, 2, 2, 2, 4).permute(0, 1, 3, 4, 2).reshape(-1, 32), 2)


def from_pair_selectors(packed: Tensor) -> Tensor:
    """The inverse of `to_pair_selectors`."""
    return low_first(packed, 2).view(-1, 2, 2, 4, 2).permute(0, 1, 4, 2, 3).reshape(-1, 32)


def to_sign_selectors(signs: Tensor) -> Tensor:
    """A sign bit a weight, ``[n, 32] -> [n, 4]``: bit ``16 h + 4 i + p`` is weight i of word ``4 h + p``.

    One shift brings a word's four signs to bits 2, 6, 10 and 14, where they choose between two registers of a
    permutation.
    """
    return pack_low_first(signs.view(-1, 2, 4, 4).transpose(2, 3).reshape(-1, 32), 1)


def from_sign_selectors(packed: Tensor) -> Tensor:
    """The inverse of `to_sign_selectors`."""
    return low_first(packed, 1).view(-1, 2, 4, 4).transpose(2, 3).reshape(-1, 32)


def eighth_sign(seven: Tensor) -> Tensor:
    """Sign bytes of eight from the seven bits that are stored: the number of minus signs is even."""
    parity = seven ^ (seven >> 4)
    parity = parity ^ (parity >> 2)
    parity = parity ^ (parity >> 1)
    return seven | ((parity & 1) << 7)
