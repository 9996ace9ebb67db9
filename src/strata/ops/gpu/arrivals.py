"""From pageable memory of the CPU to the device: one piece crosses the link while the next is laid out for it."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

ROOMS = 2
"""Pieces of pinned memory that take turns; they stay."""


class Arrivals:
    """Pinned memory through which pieces go, and what is still on its way from there.

    Args:
        device: where to.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms = [torch.empty(0, dtype=torch.uint8) for _ in range(ROOMS)]
        self._left: list[Any] = [None] * ROOMS  # when a room's last piece has left it

    def stacked(self, pieces: Iterable[Sequence[Sequence[Tensor]]]) -> Iterator[Tensor]:
        """Pieces on the device, in order, each for what is launched on the current stream from now on.

        Args:
            pieces: each of several tables that are stacked, [tables, rows, ...]; a table's rows in parts, [rows, ...]
                each, that follow one another.
        """
        for number, tables in enumerate(pieces):
            like, turn = tables[0][0], number % ROOMS
            shape = (len(tables), sum(len(part) for part in tables[0]), *like.shape[1:])
            here = self._room(turn, shape, like.dtype)
            for table, parts in zip(here, tables, strict=True):
                at = 0
                for part in parts:
                    table[at : at + len(part)] = part
                    at += len(part)
            there = torch.empty(shape, dtype=like.dtype, device=self._device)
            there.copy_(here, non_blocking=True)
            if self._device.type == "cuda":
                self._left[turn] = torch.cuda.Event()
                self._left[turn].record()
            yield there

    def _room(self, turn: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        nbytes, on_gpu = prod(shape) * dtype.itemsize, self._device.type == "cuda"
        if self._left[turn] is not None:
            self._left[turn].synchronize()
        if len(self._rooms[turn]) < nbytes:
            self._rooms[turn] = torch.empty(nbytes, dtype=torch.uint8, pin_memory=on_gpu)
        return self._rooms[turn][:nbytes].view(dtype).view(*shape)


def between(parts: Sequence[Tensor], first: int, last: int) -> list[Tensor]:
    """Rows from `first` to `last` of parts that follow one another, in parts again; nothing is copied."""
    found, at = [], 0
    for part in parts:
        begin, end = max(first - at, 0), min(last - at, len(part))
        if begin < end:
            found.append(part[begin:end])
        at += len(part)
    return found
