"""Which experts come first when not all fit: one order for all budgets, so that more memory never holds fewer.

Slots belong to classes of one size; a class's experts are alike as far as the plan knows. The order goes through all
classes at once, each in proportion to its number: so every layer has the same share of its experts in VRAM. Equal
shares are right where nothing is known of the text, for a hit of an expert of twice the size also saves twice the
bytes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from strata.memory.budget.sizes import ExpertLayer


@dataclass(frozen=True, slots=True)
class SlotClass:
    """Experts of one size.

    Attributes:
        slot: bytes of one in VRAM.
        stored: bytes as the file has it.
        layers: numbers of their layers.
        experts: how many there are.
        held: bytes of one that was read into RAM by itself.
        in_vram: of them in slots: as many slots as this class has.
        in_ram: of those without a slot, how many lie in RAM.
        on_ssd: how many are read from the SSD when they are needed.
    """

    slot: int
    stored: int
    layers: tuple[int, ...]
    experts: int
    held: int
    in_vram: int = 0
    in_ram: int = 0
    on_ssd: int = 0


def classes_of(layers: Sequence[ExpertLayer]) -> tuple[SlotClass, ...]:
    """Layers by the size of their experts, the first layer's class first."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for index, layer in enumerate(layers):
        found.setdefault((layer.slot, layer.stored, layer.held or layer.stored), []).append(index)
    return tuple(
        SlotClass(slot, stored, tuple(members), sum(layers[i].count for i in members), held)
        for (slot, stored, held), members in found.items()
    )


@lru_cache(maxsize=32)
def order(counts: tuple[int, ...]) -> tuple[int, ...]:
    """The class of each expert, first to last: number k of n stands at (2 k + 1) / 2 n of the way."""
    places = [((2 * k + 1) / (2 * count), index) for index, count in enumerate(counts) for k in range(count)]
    return tuple(index for _, index in sorted(places))


@lru_cache(maxsize=32)
def some_first(turn: tuple[int, ...], least: int) -> tuple[int, ...]:
    """The same in another order: so many of each class come before all others, for nothing goes without them."""
    left: dict[int, int] = {}
    early: list[int] = []
    rest: list[int] = []
    for index in turn:
        count = left.get(index, least)
        (early if count else rest).append(index)
        left[index] = max(0, count - 1)
    return (*early, *rest)


def prefix(turn: Sequence[int], sizes: Sequence[int], budget: int) -> int:
    """How many of the first experts fit, each as large as its class says."""
    return bisect_right(list(accumulate(sizes[index] for index in turn)), budget)
