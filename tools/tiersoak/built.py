"""One model twice: with all of its experts on the device, and with a share of them in slots."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from strata.gguf import open_model
from strata.loading import gpu, resizing, tiers
from strata.loading.cache import cached_as
from strata.loading.device import Placement
from strata.loading.sizes import sizes_of
from strata.loading.storage import Storage, hosted
from strata.memory.budget import Machine, Plan, Wishes, least, plan
from strata.memory.budget.machine import rates_for
from strata.memory.budget.plan import Table
from strata.model import Network, load_config, load_weights
from strata.model.weights import Weights
from strata.ops.tiers.tier import Tier

CARD = 24 << 30
"""Bytes of the card that the interpreter stands for."""


@dataclass
class Tiered:
    """The model with experts in tiers.

    Attributes:
        network: as it runs.
        tier: of its experts.
        placement: what it takes of the device; follows every resize.
        first: share of experts that had slots at the start.
        moves: experts that have come into slots since somebody began to count.
    """

    network: Network
    tier: Tier
    placement: Placement
    first: float
    moves: int = 0

    def __post_init__(self) -> None:
        """Count what lands."""
        cache: Any = self.tier.cache
        landed = cache.landed

        def counted(move: Any) -> Any:
            self.moves += 1
            return landed(move)

        cache.landed = counted

    def resize(self, vram: int) -> None:
        """Take at most so many bytes of the device's memory, as `Model.resize` does.

        Raises:
            StrataError: it is refused; nothing has changed.
        """
        self.placement = resizing.resize(self.tier, self.placement, vram)

    def vram(self, share: float) -> int:
        """Bytes to ask for, so that such a share of the experts has slots."""
        at, cache = self.placement, self.tier.cache
        whole = sum(cache.sizes[kind] for kind in cache.classes) * cache.experts  # type: ignore[attr-defined]
        other = at.weights - at.slots + at.cache + at.work + at.kept
        return int(other + share * whole + (self.tier.room.waste if share else 0))


class Model:
    """A file, and networks of it.

    Args:
        path: the file.
        device: cuda, or cpu for Triton's interpreter.
        context: tokens a conversation may hold at most.
        conversations: that run at once.
        threads: CPU threads that compute experts without a slot; None for one a core, less one.
    """

    def __init__(self, path: Path, device: str, context: int, conversations: int, threads: int | None = None) -> None:
        self._directory = open_model(path)
        config = cached_as(load_config(self._directory.metadata), gpu.KV)
        self.config = replace(config, context=min(config.context, context))
        self._weights = load_weights(self._directory, self.config)
        self._conversations, self._threads = conversations, threads
        card = gpu.find("cuda") if device == "cuda" else gpu.Card(0, "interpreter", gpu.TENSOR_CORES, CARD, CARD)
        if card is None:
            raise SystemExit("torch finds no GPU here; --device cpu runs in Triton's interpreter")
        self.card, self._device = card, torch.device(device)

    @contextmanager
    def resident(self) -> Iterator[Network]:
        """With all experts on the device; its memory is free again behind it."""
        made = self._plan(None)
        if not made.resident:
            raise SystemExit(f"the model does not fit into {self.card.name} whole, so there is nothing to compare with")
        yield self._built(made, self._weights, None)[0]

    @contextmanager
    def tiered(self, share: float, ram: float | None = None) -> Iterator[Tiered]:
        """With a share of the experts in slots, and the others in RAM.

        Args:
            share: of the experts.
            ram: share of the experts that RAM has room for; the others are read from the file. None for all.
        """
        made, weights, storage = self._plan(share, ram), self._weights, Storage()
        if self._device.type == "cuda" and made.table in {Table.RAM, Table.SSD}:
            mode = "ram" if made.table is Table.RAM else "direct"
            weights, storage = hosted(weights, self._directory, mode, self._device)
        network, placement = self._built(made, weights, tiers.Source(self._directory, storage))
        tier: Any = getattr(network.ops, "tier", None)
        assert isinstance(tier, Tier)
        if self._device.type == "cpu":
            tier.options = replace(tier.options, every=1)  # windows take seconds there, so experts move behind each
        try:
            yield Tiered(network, tier, placement, share)
        finally:
            tier.close()
            storage.close()

    def _plan(self, share: float | None, ram: float | None = None) -> Plan:
        sizes = sizes_of(self._directory, self.config)
        whole = sum(layer.slot for layer in sizes.layers) * self.config.moe.E
        wishes = Wishes(
            context=self.config.context, conversations=self._conversations, kv=gpu.KV, drafts=self.config.mtp,
            experts=None if share is None else int(share * whole), ram_headroom=0,
        )  # fmt: skip
        machine = Machine(self.card.free, rates=rates_for(self.card.free, self.card.name))
        made = plan(machine, sizes, wishes)
        if made.resident and share is not None:  # what brings the experts of so small a model takes more than they do
            sizes = replace(sizes, transit=0)
            made = plan(machine, sizes, wishes)
        if ram is None:
            return made
        beside = sum(part.nbytes for part in made.ram.parts if part.name not in {least.EXPERTS, least.TABLE})
        room = int(ram * sizes.expert_bytes) + sizes.slack + least.row_cache(sizes)
        return plan(replace(machine, ram=beside + room), sizes, wishes)

    def _built(self, made: Plan, weights: Weights, source: tiers.Source | None) -> tuple[Network, Placement]:
        began = time.monotonic()
        config = replace(self.config, context=made.context)
        if self._device.type == "cuda":
            network, placement = gpu.network(
                self.card, weights, config, made, None, threads=self._threads, source=source
            )
        else:
            built = gpu._built(  # noqa: SLF001  # what `gpu.network` does on a card
                self.card, weights, config, made, self._device, lambda _: None, self._threads, source, None  # type: ignore[arg-type]
            )  # fmt: skip
            network, placement = built.network, Placement.on_gpu(made, 0, self.card.name)
        held = (
            "" if made.resident else f"; in RAM {sum(one.in_ram for one in made.classes)}, {made.arena} of the experts"
        )
        print(f"{time.monotonic() - began:.1f} s: {placement}{held}", flush=True)
        return replace(network, drafts=self.config.mtp), placement
