"""How a file's block becomes its part of every plane, as constants of one kernel that serves every type.

Packing (`strata.ops.planes`) moves bits, and here and there adds some up without carry: the eighth sign of seven, a
number less 32. So every bit of a plane is the sum modulo two of some bits of the block and a constant. That is asked of
`Layout.split` itself, a bit at a time, so there is nothing to keep in step with it; and a test holds the recipes to the
planes of random bytes, for every type.

A plane's word is formed whole: from one to 16 windows of up to four bytes, each shifted and masked as often as its bits
move by different distances. Words of a plane mostly differ only in where their windows begin, so what is shifted by how
much is written into the code, and nothing is looked up. Words that differ in more are other `Strand`s.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import gcd, lcm

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.planes import layout

WIDEST = 6144
"""Bytes of blocks that a program brings, at most."""

WORD = 4
"""Bytes of a plane that are formed at once, where a block has as many."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some neighbouring bytes of a block, as one number of up to 32 bits.

    Attributes:
        offset: of the first byte, for the first unit of a strand.
        steps: how much further it is for every run of the strand's units.
        chunk: bytes that are loaded at once: 1, 2 or 4.
        chunks: loads.
        terms: how far bits move to the right (negative: to the left), and which of the result are taken.
    """

    offset: int
    steps: tuple[int, ...]
    chunk: int
    chunks: int
    terms: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Strand:
    """Units of a plane that are formed in the same way.

    Attributes:
        first: unit of a block.
        count: units of a block, a power of two.
        runs: bits of a unit's number within the strand: from which on, which of them (a mask), and how many units of
            the plane one step is.
        constant: added to every one.
        windows: what the rest is made of.
    """

    first: int
    count: int
    runs: tuple[tuple[int, int, int], ...]
    constant: int
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One plane of a type.

    Attributes:
        bytes: of the plane for a block, a power of two.
        unit: bytes that are formed at once: 4, or all where they are fewer.
        strands: that make up its units.
    """

    bytes: int
    unit: int
    strands: tuple[Strand, ...]


@cache
def recipes(name: str) -> tuple[Recipe, ...]:
    """Of every plane of a type.

    Raises:
        FormatError: packing is more than sums of bits, or a plane's part of a block is no power of two.
    """
    return recipes_of(layout(name).split, by_name(name).bytes, name)


def recipes_of(split: Callable[[Tensor], Sequence[Tensor]], size: int, name: str) -> tuple[Recipe, ...]:
    """Of every plane that is made of blocks of `size` bytes: ``uint8 [n, size] -> uint8 [n, ..]``, some of them.

    Raises:
        FormatError: as `recipes`.
    """
    probes = torch.zeros((1 + 8 * size, size), dtype=torch.uint8)
    probes[1:].view(size, 8, size)[torch.arange(size), :, torch.arange(size)] = 1 << torch.arange(8, dtype=torch.uint8)
    result = []
    for plane in split(probes):
        flat = plane.reshape(len(probes), -1)
        width = flat.shape[1]
        if width & (width - 1):
            raise FormatError(f"a block of {name} has {width} bytes in a plane, which is no power of two")
        unit = min(WORD, width)
        units = [_Unit.of(flat[:, first : first + unit]) for first in range(0, width, unit)]
        result.append(Recipe(width, unit, tuple(_strands(units, size))))
    check = torch.randint(0, 256, (64, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for plane, one in zip(split(check), result, strict=True):
        if not torch.equal(plane.reshape(64, -1), apply(one, check)):
            raise FormatError(f"blocks of {name} are not made into planes by sums of bits")
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Unit:
    """How one unit is formed: where its windows begin, and all else, which is to be alike in a strand."""

    offsets: tuple[int, ...]
    widths: tuple[int, ...]
    terms: tuple[tuple[tuple[int, int], ...], ...]
    constant: int

    @classmethod
    def of(cls, effect: Tensor) -> "_Unit":
        """From what every bit of a block does to its bytes: ``uint8 [1 + 8 size, bytes]``, the first without any."""
        constant = effect[0]
        moved: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by source byte: its bit, and the unit's
        for source, byte in (effect[1:] ^ constant).nonzero().tolist():
            value = int(effect[1 + source, byte] ^ constant[byte])
            moved[source // 8] += [(source, 8 * byte + place) for place in range(8) if value >> place & 1]
        offsets: list[int] = []
        for byte in sorted(moved):
            if not offsets or byte >= offsets[-1] + WORD:
                offsets.append(byte)
        widths, terms = [], []
        for offset in offsets:
            here = [byte for byte in moved if offset <= byte < offset + WORD]
            masks: dict[int, int] = defaultdict(int)
            for source, target in (pair for byte in here for pair in moved[byte]):
                masks[source - 8 * offset - target] |= 1 << target
            widths.append(max(here) + 1 - offset)
            terms.append(tuple(sorted(masks.items())))
        number = int.from_bytes(bytes(constant.tolist()), "little")
        return cls(tuple(offsets), tuple(widths), tuple(terms), number)

    def steps(self, other: "_Unit") -> tuple[int, ...] | None:
        """How much further the other's windows begin; None if it differs in more."""
        if (self.widths, self.terms, self.constant) != (other.widths, other.terms, other.constant):
            return None
        return tuple(there - here for here, there in zip(self.offsets, other.offsets, strict=True))


def _strands(units: list[_Unit], size: int) -> list[Strand]:
    """Units, a power of two of them, whose numbers differ in bits that only move windows are one strand."""
    free: dict[int, tuple[int, ...]] = {}
    fixed = []
    for bit in (1 << i for i in range(len(units).bit_length() - 1)):
        found = {units[i].steps(units[i + bit]) for i in range(len(units)) if not i & bit}
        further = found.pop()
        if found or further is None:
            fixed.append(bit)
        else:
            free[bit] = further
    runs, steps = _runs(free)
    result = []
    for chosen in product((0, 1), repeat=len(fixed)):
        first = sum(bit * there for bit, there in zip(fixed, chosen, strict=True))
        one, windows = units[first], []
        for i, (offset, width, terms) in enumerate(zip(one.offsets, one.widths, one.terms, strict=True)):
            further = tuple(step[i] for step in steps)
            chunk = gcd(size, offset, WORD, *further)
            windows.append(Window(offset, further, chunk, -(-width // chunk), terms))
        result.append(Strand(first, 1 << len(free), runs, one.constant, tuple(windows)))
    return result


def _runs(free: dict[int, tuple[int, ...]]) -> tuple[tuple[tuple[int, int, int], ...], list[tuple[int, ...]]]:
    """Bits that each go twice as far as the one before are one run: all runs, and how far a step of each is."""
    runs: list[tuple[int, int, int]] = []
    steps: list[tuple[int, ...]] = []
    for place, (bit, further) in enumerate(free.items()):
        if runs:
            began, mask, apart = runs[-1]
            times = place - began
            if bit == apart << times and further == tuple(step << times for step in steps[-1]):
                runs[-1] = began, 2 * mask + 1, apart
                continue
        runs.append((place, 1, bit))
        steps.append(further)
    return tuple(runs), steps


def apply(one: Recipe, blocks: Tensor) -> Tensor:
    """What the kernel does, in torch: ``uint8 [n, block bytes] -> [n, bytes]``."""
    out = torch.zeros((len(blocks), one.bytes // one.unit, one.unit), dtype=torch.uint8)
    for strand in one.strands:
        place = torch.arange(strand.count)
        parts = [place >> began & mask for began, mask, _ in strand.runs]
        unit = torch.full((strand.count,), strand.first)
        for part, (_, _, apart) in zip(parts, strand.runs, strict=True):
            unit += part * apart
        total = torch.full((len(blocks), strand.count), strand.constant, dtype=torch.int64)
        for window in strand.windows:
            offset = torch.full((strand.count,), window.offset)
            for part, step in zip(parts, window.steps, strict=True):
                offset += part * step
            word = torch.zeros_like(total)
            for byte in range(window.chunk * window.chunks):
                word |= blocks[:, offset + byte].long() << 8 * byte
            for shift, mask in window.terms:
                total ^= (word >> shift if shift >= 0 else word << -shift) & mask
        for byte in range(one.unit):
            out[:, unit, byte] = (total >> 8 * byte & 255).to(torch.uint8)
    return out.view(len(blocks), -1)


@cache
def together(name: str, widest: int = WIDEST) -> int:
    """Blocks that a program brings at once, a power of two; their bytes are a multiple of 16."""
    size = by_name(name).bytes
    count = lcm(size, 16) // size
    while 2 * count * size <= widest:
        count *= 2
    return count


def code(some: Sequence[Recipe], starts: Sequence[int]) -> tuple[int, ...]:
    """Recipes as the kernel reads them: one tuple of numbers, for it takes no tuples of tuples.

    Args:
        some: of the planes of a matrix.
        starts: bytes where those begin.

    Returns:
        How many strands; of each of them 10 numbers: where the plane begins, bytes of a unit, units of a block, first,
        count, constant, where its runs are and how many, where its windows are and how many. A run: see `Strand`. A
        window has 6: offset in chunks, bytes of a chunk, chunks, where its terms are and how many, where its steps in
        chunks are.
    """
    strands = [(one, start, strand) for one, start in zip(some, starts, strict=True) for strand in one.strands]
    numbers = [len(strands), *(0 for _ in range(10 * len(strands)))]
    for i, (one, start, strand) in enumerate(strands):
        runs = len(numbers)
        numbers += [n for run in strand.runs for n in run]
        windows = len(numbers)
        numbers += [0] * 6 * len(strand.windows)
        for j, window in enumerate(strand.windows):
            terms = len(numbers)
            numbers += [n for term in window.terms for n in term]
            steps = len(numbers)
            numbers += [step // window.chunk for step in window.steps]
            numbers[windows + 6 * j : windows + 6 * j + 6] = (
                window.offset // window.chunk, window.chunk, window.chunks, terms, len(window.terms), steps,
            )  # fmt: skip
        numbers[1 + 10 * i : 11 + 10 * i] = (
            start, one.unit, one.bytes // one.unit, strand.first, strand.count, strand.constant, runs,
            len(strand.runs), windows, len(strand.windows),
        )  # fmt: skip
    return tuple(numbers)
