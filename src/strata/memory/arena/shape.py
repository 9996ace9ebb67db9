"""Where experts lie: in the file, part by part, and in a slot of memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.memory.errors import StorageError
from strata.memory.reads import Item, ReadFile

PAGE = 4096
"""Bytes that a part's place in a slot may be shifted by, so that it lies in memory as it does in the file's blocks."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One matrix of each of a layer's experts, as the file has them.

    Attributes:
        file: which.
        offset: first byte of expert 0.
        step: bytes from one expert to the next.
        nbytes: of one expert.
        experts: how many.
    """

    file: ReadFile
    offset: int
    step: int
    nbytes: int
    experts: int

    def of(self, expert: int) -> int:
        """First byte of an expert."""
        if not 0 <= expert < self.experts:
            raise StorageError(f"there are experts 0 to {self.experts - 1}, not {expert}")
        return self.offset + expert * self.step


Expert = tuple[Stack, ...]
"""The parts of a layer's experts: gate, up and down, as a rule."""


@dataclass(frozen=True, slots=True)
class SlotShape:
    """A slot that holds an expert's parts as the file has them, each as far behind a page as it is in the file.

    That takes a page more for each part, and a read goes straight from the disk into its place.

    Attributes:
        parts: bytes of each.
    """

    parts: tuple[int, ...]

    @property
    def rooms(self) -> tuple[int, ...]:
        """Bytes for each part, whatever its shift."""
        return tuple(-(-(nbytes + PAGE - 1) // PAGE) * PAGE for nbytes in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of a slot, a multiple of a page."""
        return sum(self.rooms)

    def places(self, expert: Expert, number: int, slot: int) -> list[int]:
        """Addresses of an expert's parts in the slot at an address that is a multiple of a page."""
        found, room = [], slot
        for stack, size in zip(expert, self.rooms, strict=True):
            found.append(room + stack.of(number) % PAGE)
            room += size
        return found

    def items(self, expert: Expert, number: int, slot: int) -> Iterator[Item]:
        """The reads that fill the slot."""
        for stack, place in zip(expert, self.places(expert, number, slot), strict=True):
            yield Item(stack.file, stack.of(number), stack.nbytes, place, room=True)


def shape_of(expert: Expert) -> SlotShape:
    """The shape of a layer's slots."""
    return SlotShape(tuple(stack.nbytes for stack in expert))


def stacks_of(parts: Sequence[NDArray[np.uint8]], files: Sequence[tuple[NDArray[np.uint8], ReadFile]]) -> Expert:
    """Find in the file what arrays are views of.

    Args:
        parts: ``uint8 [E, N, row_bytes]`` each, views of mapped files; an expert's rows must not lie apart.
        files: every mapped file, uint8 [size], and the file to read it by.

    Raises:
        StorageError: an array is no view of any of the files.
    """
    found = []
    for part in parts:
        at, last = (
            part.ctypes.data,
            part.ctypes.data + sum((size - 1) * step for size, step in zip(part.shape, part.strides, strict=True)),
        )
        for mapped, file in files:
            first = mapped.ctypes.data
            if first <= at and last < first + len(mapped) and part[0].flags.c_contiguous:
                found.append(Stack(file, at - first, part.strides[0], part[0].nbytes, len(part)))
                break
        else:
            raise StorageError("experts can be read from the file only where they are kept as the file stores them")
    return tuple(found)
