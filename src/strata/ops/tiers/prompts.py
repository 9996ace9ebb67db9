"""Experts in tiers for prompt passes: those without a slot come through a ring (`strata.ops.prompt.stream`)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strata.errors import TierError
from strata.memory.errors import StorageError
from strata.ops.experts.slots import SlotLayout
from strata.ops.prompt.stream.lanes import DeviceLanes, InOrder, Lanes
from strata.ops.prompt.stream.ring import Experts, Ring
from strata.ops.prompt.stream.split import Costs
from strata.ops.prompt.stream.streaming import Streaming
from strata.ops.tiers.landing import PER_PROCESSOR, Landing
from strata.ops.tiers.loan import Loan
from strata.ops.tiers.measure import copy_cost
from strata.ops.tiers.sizes import HALVES, LANDING
from strata.ops.tiers.tier import Tier

LINK = 25e3
"""Bytes a microsecond over the link, where there is none that could be measured."""

DISK = 3e3
"""Bytes a microsecond that come from a disk, where nobody has measured it: an SSD on four lanes of PCIe 3."""


class Shelf:
    """`strata.ops.prompt.stream.ring.Layers` of a tier: the file's blocks are copied, and repacked where they land.

    Args:
        tier: of the model.
        area: where groups land.
    """

    def __init__(self, tier: Tier, area: Landing) -> None:
        self._tier, self._area = tier, area

    @property
    def landing(self) -> int:
        """See `Layers.landing`."""
        return len(self._area)

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

    def fetch(self, layer: int, experts: Sequence[int], place: int) -> None:
        """See `Layers.fetch`.

        Raises:
            TierError: experts cannot be read from the disk, or take too long.
        """
        source, supply = self._tier.layers[layer].source, self._tier.supply
        if supply is None:
            addresses = self._tier.ram.addresses[layer][list(experts)]
            self._area.fetch(source, place, addresses, range(len(experts)))
            return
        try:
            for rows, addresses in supply.taken(layer, experts):
                self._area.fetch(source, place, addresses, rows)
        except StorageError as error:
            raise TierError(f"a prompt's pass was given up, for experts could not be read: {error}") from error

    def bring(self, layer: int, ring: Tensor, count: int, place: int, buffers: Tensor) -> None:
        """See `Layers.bring`."""
        self._area.bring(self._tier.layers[layer].source, ring, place, count, buffers)

    def ask(self, layer: int, experts: Sequence[int]) -> bool:
        """See `Layers.ask`."""
        return self._tier.supply is not None and self._tier.supply.want(layer, experts)

    def there(self, layer: int, experts: Sequence[int]) -> bool:
        """See `Layers.there`."""
        return self._tier.supply is None or self._tier.supply.there(layer, experts)


def streaming(
    tier: Tier,
    moes: Sequence[Any],
    topk: int,
    device: torch.device,
    *,
    buffers: int = 0,
    landing: int = LANDING,
    each: int = PER_PROCESSOR,
    disk: float = DISK,
    wide: int = 0,
    loan: Loan | None = None,
) -> Streaming:
    """What prompts ask about a tier's experts.

    Args:
        tier: of the model.
        moes: each layer's experts on the device.
        topk: experts a row visits.
        device: where slots are.
        buffers: of a ring of its own; 0 for one in the room that windows have.
        landing: places for a group each before a ring of its own.
        each: programs for each multiprocessor that make planes there.
        disk: bytes a microsecond that come from the disk.
        wide: buffers of the ring for long passes, when there is memory for it.
        loan: says when that is; None for never.

    Raises:
        TierError: the GPU's driver cannot copy.
    """
    lanes: Lanes = DeviceLanes(device) if device.type == "cuda" else InOrder()
    heaviest = max(one.source.nbytes for one in tier.layers)

    def ring(buffers: int) -> tuple[Ring, Landing]:
        most = max(1, buffers // 3)
        area = _landing(tier, most, device, each, places=landing)
        return _ring(_buffers(tier, buffers, device), tier, area, moes, lanes), area

    if buffers:
        found, area = ring(buffers)
    else:
        memory, stage = tier.room_for_ring
        most = max(1, len(stage) // heaviest // HALVES)
        area = _landing(tier, most, device, each, memory=stage)
        found = _ring(memory, tier, area, moes, lanes)
        tier.rest = found.rest
    link = copy_cost(tier, area) if device.type == "cuda" else heaviest / LINK
    if tier.supply is not None:
        link += tier.supply.absent * heaviest / disk
    longer = None if loan is None or not wide else Borrowed(loan, lambda: ring(wide)[0])
    return Streaming(found, moes, topk, Costs(link=link), _never if longer is None else longer)


class Borrowed:
    """The ring of long passes, in memory that slots have lent.

    Args:
        loan: says when there is memory.
        make: makes it.
    """

    def __init__(self, loan: Loan, make: Callable[[], Ring]) -> None:
        self._loan, self._make = loan, make
        self._ring: Ring | None = None
        loan.drop = self._drop

    def __call__(self) -> Ring | None:
        """The ring, for the pass that begins."""
        if not self._loan.wide:
            return None
        if self._ring is None:
            self._ring = self._make()
        return self._ring

    def _drop(self) -> None:
        self._ring = None


def _never() -> None:
    return None


def _landing(tier: Tier, most: int, device: torch.device, each: int, **where: Any) -> Landing:
    return Landing([one.source for one in tier.layers], most, device, tier.ram.cuts, each=each, **where)


def _buffers(tier: Tier, buffers: int, device: torch.device) -> Tensor:
    """Memory of a ring, whole slots away from the tier's, so that slots that are lent count from the same place."""
    largest = tier.largest_bytes[0]
    memory = torch.zeros((buffers + 1) * largest, dtype=torch.uint8, device=device)
    return memory[(tier.largest.data_ptr() - memory.data_ptr()) % largest :][: buffers * largest]


def _ring(memory: Tensor, tier: Tier, area: Landing, moes: Sequence[Any], lanes: Lanes) -> Ring:
    return Ring(memory, Shelf(tier, area), len(moes), moes[0].slots.experts, most=area.most, lanes=lanes)
