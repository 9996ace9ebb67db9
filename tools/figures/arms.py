"""Placements of the experts that are compared: all in VRAM, none, half of the layers', and what fits under a cap."""

import gc
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from figures.model import Fixed, Model
from figures.summary import share_of_the_first
from strata.loading import gpu, tiers
from strata.loading.gpu import Card
from strata.memory.budget import Plan
from strata.memory.slots import SlotCache
from strata.model import Network
from strata.ops.prompt.stream.streaming import Streaming
from strata.ops.tiers import measure
from strata.ops.tiers.landing import PER_PROCESSOR
from strata.ops.tiers.prompts import streaming
from strata.ops.tiers.sizes import BUFFERS, LANDING
from strata.ops.tiers.tier import Tier, TierOptions

SKEW = 0.86
"""Share of visits that the most visited third of the experts gets: published hit rates at 32% are 83 to 90%."""

THIRD = 0.32

CAPS = {"cap24": 24, "cap12": 12}
"""GB of VRAM."""


@dataclass
class Arm:
    """One placement.

    Attributes:
        network: as it runs.
        tier: None where all experts are in VRAM.
        placed: how it came about: slots, shares, memory.
        facts: see `Model.facts`.
    """

    network: Network
    tier: Tier | None
    placed: dict[str, Any]
    facts: dict[str, float]
    extra: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """End its threads."""
        if self.tier is not None:
            self.tier.close()

    @property
    def coming(self) -> Streaming:
        """Through which its prompts fetch what they lack, as it was loaded."""
        found: Streaming = self.network.ops._prompt.streaming  # type: ignore[attr-defined]  # noqa: SLF001
        return found

    def reading(
        self, *, buffers: int = BUFFERS, landing: int = LANDING, each: int = PER_PROCESSOR, rows: int = 4096
    ) -> Streaming:
        """Let its prompts fetch what they lack, in passes of so many rows; see `streaming` for the others."""
        assert self.tier is not None
        moes: Any = [layer.moe for layer in self.network.weights.layers]
        config, ops = self.network.config, self.network.ops
        device = moes[0].choosing.device
        coming = streaming(self.tier, moes, config.moe.topk, device, buffers=buffers, landing=landing, each=each)
        ops.lacks(coming, rows=rows)  # type: ignore[attr-defined]
        return coming


def build(name: str, model: Model) -> Arm:
    """A placement by its name: resident, none, half, cap24 or cap12.

    Raises:
        RequestError: a cap is too small for what is not experts; says what is needed.
    """
    before, skew = used(model), 0.0
    each, facts = model.config.moe.E, model.facts()
    options = TierOptions(tuple(tiers.processors(None)), room=tiers.room(model.config.moe.topk, each))
    if name == "resident" or name in CAPS:
        skew = skew_of(SKEW, each, model.config.moe.topk)
    placed: dict[str, Any] = {"skew": round(skew, 3)}
    if name == "resident":
        cells = 2 * model.config.context
        network, tier = model.network(skew=skew, cells=cells, ahead=True)
    elif name in CAPS:
        made = capped(model, CAPS[name] * 10**9)
        slots = tuple(sum(one.in_vram for one in made.classes if one.slot == size) for size in model.sizes)
        placed |= told_of(made)
        cache: Any = SlotCache(model.sizes, model.classes, slots, experts=each)
        network, tier = model.network(cache, slots, options, skew=skew, passes=(made.short, made.rows))
    else:
        half = range(model.layers // 2, model.layers) if name == "half" else range(0)
        cache = Fixed(model.classes, each, [(layer, expert) for layer in half for expert in range(each)])
        network, tier = model.network(cache, cache.slots, replace(options, every=0), ahead=name == "none")
    if tier is not None:
        alone = measure.calibrate(tier)
        costs = measure.balance(tier) if model.device.type == "cuda" else alone
        held = int((tier.cache.slot_of >= 0).sum())
        placed |= {
            "slots": held, "share": round(held / (model.layers * each), 4), "costs_us": asdict(costs),
            "split": tier.split[: 4 * model.config.moe.topk + 1].tolist(), "threads": len(options.cpus),
            "experts_in_ram": model.how,
        }  # fmt: skip
    placed["vram_gb"] = round((used(model) - before) / 1e9, 2)
    return Arm(network, tier, placed, facts)


def capped(model: Model, cap: int) -> Plan:
    """The plan under a cap of bytes, as `strata run` and `strata chat` with `--vram` have it: one conversation.

    Raises:
        RequestError: not even the rest fits; says how much is needed.
    """
    card = gpu.find("cuda") or Card(0, "a card", gpu.TENSOR_CORES, cap, cap)
    return gpu.plan_for(replace(card, free=cap), model.directory, model.config, 1, drafts=False)


def told_of(made: Plan) -> dict[str, Any]:
    """How a cap is divided, and what a long prompt borrows."""
    assert made.vram is not None
    parts = {part.name.replace(" ", "_"): part.nbytes for part in made.vram.parts}
    gb = {"cap": made.vram.budget} | parts | {"borrowed_while_a_long_prompt_is_read": made.lent}
    return {
        "conversations": made.conversations, "tokens_of_the_conversation": made.cells, "longest_pass": made.rows,
        "longest_pass_that_borrows_nothing": made.short, "ring_among_what_is_borrowed": made.ring,
    } | {f"{what}_gb": round(value / 1e9, 3) for what, value in gb.items()}  # fmt: skip


def used(model: Model) -> int:
    """Bytes of VRAM that are taken, by whomever; nothing that torch keeps for later."""
    if model.device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


@cache
def skew_of(share: float, experts: int, topk: int) -> float:
    """How unequal rows of a router have to be for the most visited third to get such a share. By simulation."""
    dice = np.random.default_rng(1)
    spread, noise = dice.standard_normal(experts), dice.standard_normal((2000, experts))
    low, high = 0.0, 3.0
    for _ in range(16):
        middle = (low + high) / 2
        chosen = np.argpartition(-noise * np.exp(middle * spread), topk - 1, axis=1)[:, :topk]
        counts = np.bincount(chosen.reshape(-1), minlength=experts).tolist()
        low, high = (middle, high) if share_of_the_first(counts, THIRD) < share else (low, middle)
    return low
