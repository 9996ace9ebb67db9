"""How a file's block becomes its part of every plane, as tables that one kernel reads for every type.

Packing (`strata.ops.planes`) moves bits, and here and there adds some up without carry: the eighth sign of seven, a
number less 32. So every bit of a plane is the sum modulo two of some bits of the block and a constant. That is asked of
`Layout.split` itself, a bit at a time, so there is nothing to keep in step with it; and a test holds the tables to the
planes of random bytes, for every type.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from math import lcm

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.planes import layout

WIDEST = 6144
"""Bytes of blocks that a program brings, at most."""


@dataclass(frozen=True, slots=True)
class Terms:
    """One plane of a type, of one block.

    Attributes:
        bytes: of the plane for a block, a power of two.
        count: terms of a byte; those that have fewer add zeros.
        words: int32 [1 + count, bytes]: constants, then terms: the block's byte in bits 0-15, how far its bits move
            plus eight in bits 16-23 (to the left), and which of the result are taken in bits 24-31.
    """

    bytes: int
    count: int
    words: Tensor


@cache
def terms(name: str) -> tuple[Terms, ...]:
    """Terms of every plane of a type.

    Raises:
        FormatError: packing is more than sums of bits.
    """
    found, kind = layout(name), by_name(name)
    size = kind.bytes
    probes = torch.zeros((1 + 8 * size, size), dtype=torch.uint8)
    probes[1:].view(size, 8, size)[torch.arange(size), :, torch.arange(size)] = 1 << torch.arange(8, dtype=torch.uint8)
    result = []
    for plane in found.split(probes):
        flat = plane.reshape(len(probes), -1)
        constant = flat[0]
        effect = (flat[1:] ^ constant).view(size, 8, -1)  # of every bit of the block on every byte of the plane
        result.append(_terms(effect, constant))
    check = torch.randint(0, 256, (64, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for plane, one in zip(found.split(check), result, strict=True):
        if not torch.equal(plane.reshape(64, -1), apply(one, check)):
            raise FormatError(f"blocks of {name} are not made into planes by sums of bits")
    return tuple(result)


def _terms(effect: Tensor, constant: Tensor) -> Terms:
    width = effect.shape[2]
    by_byte: list[dict[tuple[int, int], int]] = [defaultdict(int) for _ in range(width)]
    for source, bit, target in effect.nonzero().tolist():
        value = int(effect[source, bit, target])
        for place in range(8):
            if value >> place & 1:
                by_byte[target][source, place - bit] |= 1 << place
    count = max(len(one) for one in by_byte)
    words = torch.zeros((1 + count, width), dtype=torch.int64)
    words[0] = constant
    words[1:] = 8 << 16
    for target, one in enumerate(by_byte):
        for i, ((source, shift), mask) in enumerate(sorted(one.items())):
            words[1 + i, target] = source | (shift + 8) << 16 | mask << 24
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words)
    return Terms(width, count, signed.to(torch.int32))


def apply(one: Terms, blocks: Tensor) -> Tensor:
    """What the kernel does, in torch: ``uint8 [n, block bytes] -> [n, bytes]``."""
    total = one.words[0].expand(len(blocks), -1).clone()
    for word in one.words[1:]:
        value = blocks[:, (word & 0xFFFF).long()].to(torch.int32)
        total ^= ((value << 8) >> (16 - (word >> 16 & 0xFF))) & (word >> 24 & 0xFF)
    return total.to(torch.uint8)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a kernel needs to know of a type.

    Attributes:
        block: bytes of a block.
        together: blocks of a program, a power of two; their bytes are a multiple of 16.
        planes: of each plane: bytes of a block, terms, and where its words begin in the table.
    """

    block: int
    together: int
    planes: tuple[tuple[int, int, int], ...]


@cache
def recipe(name: str, widest: int = WIDEST) -> Recipe:
    """Of a type.

    Raises:
        FormatError: a plane's part of a block is no power of two.
    """
    size, planes, at = by_name(name).bytes, [], 0
    for one in terms(name):
        if one.bytes & (one.bytes - 1):
            raise FormatError(f"a block of {name} has {one.bytes} bytes in a plane, which is no power of two")
        planes.append((one.bytes, one.count, at))
        at += one.words.numel()
    least = lcm(size, 16) // size
    together = least
    while 2 * together * size <= widest:
        together *= 2
    return Recipe(size, together, tuple(planes))


@cache
def table(name: str, device: torch.device) -> Tensor:
    """The words of all planes one after another, int32, on a device."""
    return torch.cat([one.words.reshape(-1) for one in terms(name)]).to(device)
