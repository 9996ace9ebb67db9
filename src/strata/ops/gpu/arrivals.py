"""From memory of the CPU to the device: pinned memory as it is, other memory through pinned pieces.

In both cases the host goes on while pieces cross the link. Of what is not pinned one piece crosses while the next is
laid out for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any

import torch
from torch import Tensor

from strata.model.memory import neighbours

ROOMS = 2
"""Pieces of pinned memory that take turns; they stay."""


class Arrivals:
    """What is on its way, and pinned memory through which pieces go.

    Args:
        device: where to.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms = [torch.empty(0, dtype=torch.uint8) for _ in range(ROOMS)]
        self._left: list[Any] = [None] * ROOMS  # when a room's last piece has left it
        self._turn = 0

    def stacked(self, pieces: Iterable[Sequence[Sequence[Tensor]]], step: int = 1) -> Iterator[Tensor]:
        """Pieces on the device, in order, each for what is launched on the current stream from now on.

        Args:
            pieces: each of several tables that are stacked, [tables, rows, ...]; a table's rows in parts, [rows, ...]
                each, that follow one another. Whoever gave them keeps them until they have crossed.
            step: rows are filled up to a multiple of it, with zeros.
        """
        for tables in pieces:
            like, rows = tables[0][0], sum(len(part) for part in tables[0])
            padded = -(-rows // step) * step
            there = torch.empty((len(tables), padded, *like.shape[1:]), dtype=like.dtype, device=self._device)
            if padded > rows:
                there[:, rows:].zero_()
            if self._reaches(chain.from_iterable(tables)):
                at = 0
                for parts in zip(*tables, strict=True):
                    self._cross(there[:, at : at + len(parts[0])], parts)
                    at += len(parts[0])
            else:
                self._detour(there[:, :rows], tables)
            yield there

    def stack(self, there: Tensor, tensors: Sequence[Tensor]) -> None:
        """Write tensors of one shape to the device, [tensors, ...]."""
        if self._reaches(tensors):
            self._cross(there, tensors)
        else:
            self._detour(there, [[one] for one in tensors])

    def _reaches(self, tensors: Iterable[Tensor]) -> bool:
        """Whether the device copies from where they lie."""
        seen: dict[int, Tensor] = {one.untyped_storage().data_ptr(): one for one in tensors}
        return self._device.type == "cpu" or all(one.is_pinned() for one in seen.values())

    def _cross(self, there: Tensor, tensors: Sequence[Tensor]) -> None:
        """Tensors that the device reaches: one copy if they are neighbours, and land as such."""
        whole = neighbours(tensors)
        if whole is not None:
            there.copy_(whole, non_blocking=True)
            return
        for place, one in zip(there, tensors, strict=True):
            place.copy_(one, non_blocking=True)

    def _detour(self, there: Tensor, tables: Sequence[Sequence[Tensor]]) -> None:
        """Tensors that it does not reach."""
        here = self._room(there.shape, there.dtype)
        for table, parts in zip(here, tables, strict=True):
            at = 0
            for part in parts:
                table[at : at + len(part)] = part
                at += len(part)
        there.copy_(here, non_blocking=True)
        if self._device.type == "cuda":
            self._left[self._turn] = torch.cuda.Event()
            self._left[self._turn].record()

    def _room(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        nbytes, on_gpu = prod(shape) * dtype.itemsize, self._device.type == "cuda"
        self._turn = (self._turn + 1) % ROOMS
        if self._left[self._turn] is not None:
            self._left[self._turn].synchronize()
        if len(self._rooms[self._turn]) < nbytes:
            self._rooms[self._turn] = torch.empty(nbytes, dtype=torch.uint8, pin_memory=on_gpu)
        return self._rooms[self._turn][:nbytes].view(dtype).view(*shape)


def between(parts: Sequence[Tensor], first: int, last: int) -> list[Tensor]:
    """Rows from `first` to `last` of parts that follow one another, in parts again; nothing is copied."""
    found, at = [], 0
    for part in parts:
        begin, end = max(first - at, 0), min(last - at, len(part))
        if begin < end:
            found.append(part[begin:end])
        at += len(part)
    return found
