"""A few small layers whose experts lie in tiers, and prompts that are read with them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from strata.gguf import open_model
from strata.loading import storage
from strata.memory.slots import Rule, SlotCache
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.tiers import ram
from strata.ops.tiers.prompts import streaming
from strata.ops.tiers.tier import Tier, TierOptions
from support.launch import NATIVE
from support.stored import write_stored

DEVICE = torch.device("cuda" if NATIVE else "cpu")

Slim = tuple[Any, Any, Any]
"""Directory, configuration and weights."""


def slim(folder: Path, chosen: Sequence[int]) -> Slim:
    """Some of four layers, of eight experts each: recurrent, the same with n-grams, recurrent, with attention."""
    directory = open_model(write_stored(folder / "m.gguf", name="slim"))
    config, weights = load_config(directory.metadata), load_weights(directory, load_config(directory.metadata))
    config = replace(config, mtp=False, mixers=tuple(config.mixers[i] for i in chosen))
    if 1 not in chosen:
        config = replace(config, ple=None)
    return directory, config, replace(weights, layers=tuple(weights.layers[i] for i in chosen), mtp=None)


def tier_with(moes: Sequence[Any], slots: int, topk: int, ram_of: Callable[[Any], ram.Ram] | None = None) -> Tier:
    """Of experts of one size, with so many slots that are filled."""
    kinds, classes = ram.layouts(moes), [0] * len(moes)
    cache = SlotCache([kinds[0].nbytes], classes, [slots], experts=len(moes[0].gate.raw), rule=Rule(margin=0.5))
    held = ram_of(moes) if ram_of else ram.pinned(moes) if NATIVE else ram.mapped(moes)
    options = TierOptions(every=1, moves=4)
    tier = Tier(kinds, ram.described(moes), held, cache, classes, [slots], topk, DEVICE, options)
    tier.fill()
    return tier


@contextmanager
def network(
    model: Slim, slots: int | None, ram_of: Callable[[Any], ram.Ram] | None = None, *, table: str = "",
    graphs: bool = True,
) -> Iterator[tuple[Network, Tier | None, Any]]:  # fmt: skip
    """The model with so many slots, or with all experts on the device; and what its prompts ask of the ring.

    Args:
        model: of `slim`.
        slots: None for all experts on the device.
        ram_of: where experts lie; None for RAM that holds them all.
        table: how the host reads n-grams (`strata.memory.ngram.rows.MODES`); on the device if empty.
        graphs: launches are recorded where there is a GPU.
    """
    directory, config, weights = model
    tier = coming = found = None
    if table:
        weights, found = storage.hosted(weights, directory, table, DEVICE)
    if slots is not None:
        tier = tier_with([layer.moe for layer in weights.layers], slots, config.moe.topk, ram_of)
    pool = Pool(config, DEVICE, slots=3, cells=384, kv=torch.float32)
    uploaded = Upload(DEVICE, tier=tier).all(weights)
    ops = GpuOps(config, pool, DEVICE, graphs=graphs, tier=tier)
    if tier is not None:
        coming = streaming(tier, [layer.moe for layer in uploaded.layers], config.moe.topk, DEVICE, buffers=5)
        ops.lacks(coming)
    try:
        yield Network(config, uploaded, ops), tier, coming  # type: ignore[arg-type]
    finally:
        if tier is not None:
            tier.close()
        if found is not None:
            found.close()


def state_of(state: Any) -> list[torch.Tensor]:
    """Copies of what a conversation keeps."""
    return [t.clone() for _, t in state.tensors()]
