"""Experts in tiers for prompt passes: those without a slot come through a ring (`strata.ops.prompt.stream`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strata.errors import TierError
from strata.memory.errors import StorageError
from strata.ops.experts.slots import SlotLayout
from strata.ops.prompt.stream.ring import Experts, Ring
from strata.ops.prompt.stream.split import Costs
from strata.ops.prompt.stream.streaming import Streaming
from strata.ops.tiers.sizes import BUFFERS
from strata.ops.tiers.tier import Tier

DISK = 3e3
"""Bytes a microsecond that come from a disk, where nobody has measured it: an SSD on four lanes of PCIe 3."""


class Shelf:
    """`strata.ops.prompt.stream.ring.Layers` of a tier: the file's blocks in RAM, brought over and repacked on the way.

    Args:
        tier: of the model.
        most: experts of a group.
        device: where slots are.
    """

    def __init__(self, tier: Tier, most: int, device: torch.device) -> None:
        self._tier, self._device = tier, device
        self._stage = torch.zeros(
            most * max(one.source.nbytes for one in tier.layers), dtype=torch.uint8, device=device
        )

    @property
    def still(self) -> bool:
        """See `Layers.still`."""
        return self._tier.still

    def begin(self) -> None:
        """See `Layers.begin`."""
        self._tier.send_table()

    def missing(self, layer: int) -> Experts:
        """See `Layers.missing`."""
        return np.flatnonzero(self._tier.sent[layer] < 0)

    def borrow(self, most: int) -> tuple[Tensor, Sequence[int]] | None:
        """See `Layers.borrow`. Nothing where RAM does not hold all experts: who gave way might have no other place."""
        if self._tier.supply is not None:
            return None
        slots = self._tier.lend(most)
        return (self._tier.largest, slots) if slots else None

    def layout(self, layer: int) -> SlotLayout:
        """See `Layers.layout`."""
        return self._tier.layers[layer].source.layout

    def bring(self, layer: int, ring: Tensor, experts: Sequence[int], buffers: Sequence[int]) -> None:
        """See `Layers.bring`.

        Raises:
            TierError: experts cannot be read from the disk, or take too long.
        """
        supply = self._tier.supply
        if supply is None:
            self._launch(layer, ring, experts, buffers, None)
            return
        try:
            for places, at in supply.taken(layer, experts):
                self._launch(layer, ring, range(len(places)), [buffers[place] for place in places], at)
        except StorageError as error:
            raise TierError(f"a prompt's pass was given up, for experts could not be read: {error}") from error

    def ask(self, layer: int, experts: Sequence[int]) -> bool:
        """See `Layers.ask`."""
        return self._tier.supply is not None and self._tier.supply.want(layer, experts)

    def there(self, layer: int, experts: Sequence[int]) -> bool:
        """See `Layers.there`."""
        return self._tier.supply is None or self._tier.supply.there(layer, experts)

    def _launch(
        self, layer: int, ring: Tensor, experts: Sequence[int], buffers: Sequence[int], at: Tensor | None
    ) -> None:
        count = len(experts)
        lists = torch.tensor([*experts, *buffers, count], dtype=torch.int32)
        if self._device.type == "cuda":
            lists = lists.pin_memory().to(self._device, non_blocking=True)
        self._tier.layers[layer].source.launch(
            ring, self._stage, lists[:count], lists[count : 2 * count], lists[2 * count :], count, at=at
        )


def streaming(
    tier: Tier, moes: Sequence[Any], topk: int, device: torch.device, *, buffers: int = BUFFERS, rate: float = 25e3
) -> Streaming:
    """What prompts ask about a tier's experts.

    Args:
        tier: of the model.
        moes: each layer's experts on the device.
        topk: experts a row visits.
        device: where slots are.
        buffers: of the ring.
        rate: bytes a microsecond over the link, where the tier has not measured it.
    """
    most = max(1, buffers // 3)
    largest = max(one.source.layout.nbytes for one in tier.layers)
    heaviest = max(one.source.nbytes for one in tier.layers)
    memory = torch.zeros((buffers + 1) * largest, dtype=torch.uint8, device=device)
    # Whole slots away from the tier's, so that slots that are lent count from the same place.
    memory = memory[(tier.largest.data_ptr() - memory.data_ptr()) % largest :][: buffers * largest]
    ring = Ring(memory, Shelf(tier, most, device), len(moes), moes[0].slots.experts, most=most)
    link = heaviest / rate if tier.costs is None else tier.costs.link
    if tier.supply is not None:
        link += tier.supply.absent * heaviest / DISK
    return Streaming(ring, moes, topk, Costs(link=link))
