"""A tier's experts as prompt passes want them: layer by layer, through a ring (`strata.ops.prompt.stream`)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.experts.slots import SlotLayout
from strata.ops.tiers.bring import Source
from strata.ops.tiers.moving import TOGETHER

RING = 96
"""Experts the ring holds: a group is copied, one waits, one is computed."""


class TierLayers:
    """`strata.ops.prompt.stream.ring.Layers` of a tier.

    Args:
        sources: each layer's experts in RAM.
        slot_of: ``int32 [L, E]`` as it is now.
        settle: lands what has come, and sends the table.
        device: where slots are.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        slot_of: Callable[[], NDArray[np.int32]],
        settle: Callable[[], None],
        device: torch.device,
    ) -> None:
        self._sources, self._slot_of, self._settle, self._device = sources, slot_of, settle, device
        heaviest = max(source.nbytes for source in sources)
        self._stage = torch.zeros(TOGETHER * heaviest, dtype=torch.uint8, device=device)

    def begin(self) -> None:
        """See `Layers.begin`: what moves between windows waits for what was launched before."""
        self._settle()

    def missing(self, layer: int) -> list[int]:
        """See `Layers.missing`."""
        found: list[int] = np.flatnonzero(self._slot_of()[layer] < 0).tolist()
        return found

    def layout(self, layer: int) -> SlotLayout:
        """See `Layers.layout`."""
        return self._sources[layer].layout

    def bring(self, layer: int, ring: Tensor, experts: Sequence[int], buffers: Sequence[int]) -> None:
        """See `Layers.bring`; one stage serves all, for copies follow one another."""
        lists = np.zeros((-(-len(experts) // TOGETHER), 3, TOGETHER), np.int32)
        for to, first in zip(lists, range(0, len(experts), TOGETHER), strict=True):
            some = experts[first : first + TOGETHER]
            to[0, : len(some)], to[1, : len(some)], to[2, 0] = some, buffers[first : first + TOGETHER], len(some)
        there = torch.from_numpy(lists)
        if self._device.type == "cuda":
            there = there.pin_memory().to(self._device, non_blocking=True)
        for counts, one in zip(lists[:, 2, 0].tolist(), there, strict=True):
            self._sources[layer].launch(ring, self._stage, one[0], one[1], one[2], counts)
