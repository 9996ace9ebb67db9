"""Memory of the CPU for what is kept of conversations: tensors that come and go together lie in one run of it.

A device may have a kind of its own, from which its copies are faster (`strata.ops.gpu.blocks`).
"""

import ctypes
import mmap
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor

ALIGN = 64
"""Bytes; each tensor of a run begins at a multiple of it."""


HUGE = 2 << 20
"""Bytes of a huge page."""

POPULATE = 23
"""MADV_POPULATE_WRITE of Linux 5.14 (madvise(2)), which Python has no name for."""

LARGE = 4 << 20
"""Bytes from which huge pages are worth asking for: with pages of 4 KiB a conversation that came back met 240,000 page
faults a GB, 0.4 s of a processor's time."""


class Memory(Protocol):
    """Where it comes from. Memory is free again when the last tensor that lies in it is gone."""

    def empty(self, nbytes: int, *, later: bool = False) -> Tensor:
        """Some memory, uint8 [nbytes], with any bytes in it.

        Args:
            nbytes: how many.
            later: leave what takes time to `ready`, which may then be called beside other work.
        """
        ...

    def ready(self, memory: Tensor) -> None:
        """Do what `empty` has left; from any thread, once at a time for one memory."""
        ...

    def hold(self, tensors: Sequence[Tensor]) -> None:
        """Keep tensors that lie in it until a device has read them, as far as it was told to by now."""
        ...

    def keep_within(self, nbytes: int) -> None:
        """Memory that is not in use is kept for the next ones while all of it together is at most so much."""
        ...

    def tidy(self) -> None:
        """Give back what is free and too much. Costs nothing where nothing became free."""
        ...


class Plain:
    """As the system gives it."""

    def empty(self, nbytes: int, *, later: bool = False) -> Tensor:
        """See `Memory.empty`."""
        del later
        memory = torch.empty(nbytes, dtype=torch.uint8)
        if nbytes >= LARGE:
            _ask_for_huge_pages(memory)
        return memory

    def ready(self, memory: Tensor) -> None:
        """There is nothing to do."""

    def hold(self, tensors: Sequence[Tensor]) -> None:
        """Whoever copies from it waits until that is done."""

    def keep_within(self, nbytes: int) -> None:
        """The system keeps it."""

    def tidy(self) -> None:
        """The system does."""


PLAIN = Plain()


def populate(memory: Tensor) -> None:
    """Have the system give all whole pages of some memory now, while the interpreter goes on; their bytes stay.

    It gives them when they are written to anyway, one by one to whoever is first: to one thread that pins all of it,
    say, while the others wait for it. A system that cannot does it then.
    """
    _advise(memory, POPULATE)


def _ask_for_huge_pages(memory: Tensor) -> None:
    """For all whole pages of it. A system that has none says so, and nothing is lost."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(memory, mmap.MADV_HUGEPAGE)


def _advise(memory: Tensor, what: int) -> None:
    first = -(-memory.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (memory.data_ptr() + memory.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0 and sys.platform == "linux":
        _library().madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), what)


@cache
def _library() -> Any:
    return ctypes.CDLL(None)


def layout(tensors: Iterable[tuple[torch.dtype, Sequence[int]]]) -> tuple[list[int], int]:
    """Where each of some tensors begins in a run of memory, in their order, and the bytes of all of it."""
    offsets, at = [], 0
    for dtype, shape in tensors:
        offsets.append(at)
        size = prod(shape) * dtype.itemsize
        at += size + (-size % ALIGN)
    return offsets, at


def laid(memory: Tensor, tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> dict[str, Tensor]:
    """Tensors by name in a run of memory, uint8, as `layout` has them; nothing is written."""
    found = {}
    for offset, (name, (dtype, shape)) in zip(layout(tensors.values())[0], tensors.items(), strict=True):
        found[name] = memory[offset : offset + prod(shape) * dtype.itemsize].view(dtype).view(*shape)
    return found


def together(memory: Memory, tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]]) -> dict[str, Tensor]:
    """New tensors by name in one run, with any numbers in them."""
    return laid(memory.empty(layout(tensors.values())[1]), tensors)


def taken(tensors: Iterable[Tensor]) -> int:
    """Bytes of memory that tensors keep, those between them included."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def neighbours(tensors: Sequence[Tensor]) -> Tensor | None:
    """Contiguous tensors of one shape as one, [tensors, ...], if each begins where the one before ends; else None."""
    first = tensors[0]
    place = first.untyped_storage().data_ptr()
    for i, one in enumerate(tensors):
        if not one.is_contiguous() or one.shape != first.shape or one.untyped_storage().data_ptr() != place:
            return None
        if one.data_ptr() != first.data_ptr() + i * first.nbytes:
            return None
    return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))
