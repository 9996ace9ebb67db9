"""Experts on their way to slots, on a stream of their own."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.streams import stream
from strata.ops.tiers.bring import Source
from strata.ops.tiers.sizes import TOGETHER


class Mover:
    """Launches moves and knows which have ended.

    Args:
        sources: of each layer.
        slots: ``uint8 [slots, bytes]`` of each layer's class.
        device: where slots are.
        at: says where experts of a layer lie in RAM now, int64 [n, 3] on the device; None where sources know.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        slots: Sequence[Tensor],
        device: torch.device,
        at: Callable[[int, NDArray[np.integer]], Tensor] | None = None,
    ) -> None:
        self._at = at
        self._sources, self._slots, self._device = sources, slots, device
        heaviest = max(source.nbytes for source in sources)
        self._stage = torch.zeros(TOGETHER * heaviest, dtype=torch.uint8, device=device)
        self._stream = stream("moves", device) if device.type == "cuda" else None
        self._flying: list[tuple[Any, list[Any], Tensor]] = []

    @property
    def flying(self) -> int:
        """Moves that have begun and not ended."""
        return sum(len(moves) for _, moves, _ in self._flying)

    def launch(self, moves: Sequence[Any]) -> None:
        """Begin to copy. Nothing that runs, or is launched before they have landed, reads their slots."""
        by_layer = defaultdict(list)
        for move in moves:
            by_layer[move.layer].append(move)
        groups = [
            (layer, some[first : first + TOGETHER])
            for layer, some in sorted(by_layer.items())
            for first in range(0, len(some), TOGETHER)
        ]
        lists = np.zeros((len(groups), 3, TOGETHER), np.int32)
        for to, (_, some) in zip(lists, groups, strict=True):
            to[0, : len(some)] = [move.expert for move in some] if self._at is None else range(len(some))
            to[1, : len(some)] = [move.slot for move in some]
            to[2, 0] = len(some)
        if self._stream is None:
            self._run(groups, torch.from_numpy(lists))
            self._flying.append((None, list(moves), self._stage))
            return
        staged = torch.from_numpy(lists).pin_memory()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            there = staged.to(self._device, non_blocking=True)
            self._run(groups, there)
            done = torch.cuda.Event()
            done.record()
        there.record_stream(self._stream)
        self._flying.append((done, list(moves), staged))

    def _run(self, groups: Sequence[tuple[int, list[Any]]], lists: Tensor) -> None:
        for (layer, some), to in zip(groups, lists, strict=True):
            # The tables of windows may change while it is copied, so what a copy needs of a changing RAM goes with it.
            at = None if self._at is None else self._at(layer, np.array([move.expert for move in some]))
            self._sources[layer].launch(self._slots[layer], self._stage, to[0], to[1], to[2], len(some), at=at)

    def landed(self, *, wait: bool = False) -> list[Any]:
        """Moves that have ended since the last call; with ``wait`` all that have begun."""
        over = []
        while self._flying:
            done, moves, _ = self._flying[0]
            if done is not None:
                if wait:
                    done.synchronize()
                elif not done.query():
                    break
            over += moves
            self._flying.pop(0)
        return over
