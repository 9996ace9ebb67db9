"""A cache of expert slots that does as it is told, and a tier around a model for the kernels under test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from strata.experts.misses import Costs
from strata.model.weights import Weights
from strata.ops.tiers import ram as rams
from strata.ops.tiers.tier import Tier, TierOptions


@dataclass(frozen=True)
class Told:
    """A move."""

    layer: int
    expert: int
    slot: int


class ToldCache:
    """Moves exactly what it is told; the rest of `strata.ops.tiers.tier.Cache`."""

    def __init__(self, layers: int, experts: int) -> None:
        self.slot_of = np.full((layers, experts), -1, np.int32)
        self.next: list[Told] = []
        self.visits: list[np.ndarray] = []

    def counts(self) -> np.ndarray:
        return np.zeros(self.slot_of.shape)

    def seen(self, visits: np.ndarray) -> None:
        self.visits.append(visits)

    def moves(self, most: int, busy: Any = None) -> list[Told]:  # noqa: ARG002
        now, self.next = self.next[:most], self.next[most:]
        return now

    def begin(self, move: Told) -> None:
        row = self.slot_of
        row[row == move.slot] = -1  # one class: a slot is the same for every layer

    def landed(self, move: Told) -> None:
        self.slot_of[move.layer, move.expert] = move.slot

    def resize(self, class_: int, slots: int) -> None:  # noqa: ARG002  # there is one
        self.slot_of[self.slot_of >= slots] = -1


def tier_of(
    weights: Weights,
    residents: Sequence[tuple[int, int]],
    *,
    topk: int,
    cpus: Sequence[int | None] = (None,),
    room: int = 4,
    costs: Costs | None = None,
    slots: int | None = None,
    looks: int = 400_000,
    device: str = "cpu",
    ram: Callable[[list[Any]], rams.Ram] | None = None,
) -> tuple[Tier, ToldCache]:
    """A tier whose slots hold some (layer, expert), all layers in one class."""
    moes = [layer.moe for layer in weights.layers]
    described = rams.described(moes)
    cache = ToldCache(len(moes), described[0].gate.experts)
    cache.next = [Told(layer, expert, slot) for slot, (layer, expert) in enumerate(residents)]
    options = TierOptions(tuple(cpus), costs or Costs(1.0, 1.0), room, looks=looks, every=1)
    if ram is None:
        ram = rams.mapped if device == "cpu" else rams.pinned
    held = ram(moes)
    count = max(1, len(residents)) if slots is None else slots
    tier = Tier(
        rams.layouts(moes), described, held, cache, [0] * len(moes), [count], topk, torch.device(device), options
    )
    tier.fill()
    return tier, cache
