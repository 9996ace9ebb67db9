"""Experts that find no place on the card: how much of it they get, and the tiers they lie in."""

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from strata.errors import RequestError
from strata.loading.device import Placement
from strata.loading.shown import shown_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from strata.loading.gpu import Card
    from strata.loading.learned import Learned
    from strata.memory.slots import SlotCache
    from strata.model import ModelConfig
    from strata.model.weights import Weights
    from strata.ops.prompt.stream.streaming import Streaming
    from strata.ops.tiers.tier import Tier

log = logging.getLogger("strata.loading")

ROOM = 32
"""Experts the link may bring for one layer; each takes a place for its blocks and one for its planes."""

FIXED = 512 << 20
"""Bytes for modules, captured graphs and pieces of weights on their way."""

LEFT = 1
"""Processors that the host's threads leave to everybody else."""


def expert_bytes(weights: "Weights") -> int:
    """Bytes that the trunk's routed experts take in slots."""
    from strata.ops.tiers.ram import layouts

    moes = [layer.moe for layer in weights.layers]
    return sum(moe.gate.shape[0] * kind.nbytes for moe, kind in zip(moes, layouts(moes), strict=True))


def room_bytes(weights: "Weights") -> int:
    """Bytes that the link's side takes, and moves on their way."""
    from strata.ops.tiers.bring import stored
    from strata.ops.tiers.moving import TOGETHER
    from strata.ops.tiers.prompts import ring_bytes
    from strata.ops.tiers.ram import layouts

    kinds = set(layouts([layer.moe for layer in weights.layers]))
    blocks = max(sum(rows * size for rows, size in stored(kind)) for kind in kinds)
    largest = max(kind.nbytes for kind in kinds)
    return ROOM * (largest + blocks) + TOGETHER * blocks + ring_bytes(largest, blocks)


def place(
    card: "Card", dense: int, config: "ModelConfig", conversations: int, experts: int, *, drafts: bool
) -> tuple[Placement, int]:
    """Divide a card's memory where experts take what is left.

    Conversations get the whole context once, together; all else is for experts.

    Args:
        card: where; `free` is what may be taken.
        dense: bytes of everything that has to be there, the link's room included.
        config: dimensions with the context in force.
        conversations: that run at once.
        experts: bytes that all experts would take.
        drafts: whether the draft head runs.

    Returns:
        Where the model is, and bytes for slots.

    Raises:
        RequestError: not even the rest fits; says how much is needed and free.
    """
    from strata.loading.gpu import TENSOR_CORES
    from strata.ops.gpu.size import cache_bytes, work_bytes

    work = FIXED + work_bytes(config, tensor_cores=card.capability >= TENSOR_CORES)
    cache = cache_bytes(config, slots=conversations, cells=config.context, drafts=drafts)
    left = card.free - dense - work - cache
    if left < 0:
        raise RequestError(
            f"{shown_bytes(card.free)} of {card.name} may be taken, but {shown_bytes(card.free - left)} are needed "
            f"without a single routed expert: {shown_bytes(dense)} of other weights and room for experts on their way, "
            f"{shown_bytes(cache)} for conversations with a context of {config.context} tokens, {shown_bytes(work)} of "
            "work space; what would help: a shorter --context, a smaller file, or a larger --vram"
        )
    slots = min(left, experts)
    return (
        Placement(
            f"cuda:{card.index}", card.name, dense + slots, config.context, cache, work,
            share=slots / experts, slots=slots,
        ),
        slots,
    )  # fmt: skip


def build(
    weights: "Weights",
    config: "ModelConfig",
    room: int,
    device: "torch.device",
    threads: int | None,
    on_bytes: "Callable[[int], None] | None" = None,
    learned: "Learned | None" = None,
) -> "Tier":
    """Put all experts into RAM, and as many into slots as there is room for.

    Args:
        weights: as the file stores them.
        config: dimensions.
        room: bytes for slots.
        device: where they are.
        threads: of the host; None for one a core, less one.
        on_bytes: called with bytes that have come into RAM.
        learned: which experts were visited most, and will be.

    Raises:
        StrataError: RAM is too small, or cannot be locked.
    """
    from strata.memory.slots import divide
    from strata.ops.tiers import ram as rams
    from strata.ops.tiers.measure import calibrate
    from strata.ops.tiers.tier import Tier, TierOptions

    moes = [layer.moe for layer in weights.layers]
    kinds, experts = rams.layouts(moes), rams.described(moes)
    sizes = sorted({kind.nbytes for kind in kinds})
    classes = [sizes.index(kind.nbytes) for kind in kinds]
    cache = learned.cache(sizes, classes, config.moe.E) if learned else _empty(sizes, classes, config.moe.E)
    slots = divide(room, sizes, classes, config.moe.E, cache.counts() if learned and learned.used else None)
    for kind, count in enumerate(slots):
        cache.resize(kind, count)
    on_gpu = device.type == "cuda"
    if on_gpu:
        held = rams.registered(moes)
        if held is None:
            from strata.loading import ram

            ram.check(sum(sum(m.nbytes * m.experts for m in layer) for layer in experts), ram.measure())
            held = rams.pinned(moes, on_bytes)
    else:
        held = rams.mapped(moes)
    options = replace(TierOptions(), cpus=tuple(processors(threads)), room=min(ROOM, 8 * config.moe.topk))
    tier = Tier(kinds, experts, held, cache, classes, slots, config.moe.topk, device, options)
    tier.fill()
    if on_gpu:
        log.info("experts in tiers: %s slots, %s", slots, calibrate(tier))
    return tier


def _empty(sizes: "Sequence[int]", classes: "Sequence[int]", experts: int) -> "SlotCache":
    """A cache that knows nothing and has no slots yet."""
    from strata.memory.slots import SlotCache

    return SlotCache(sizes, classes, [0] * len(sizes), experts=experts)


def prompts(
    tier: "Tier | None", weights: "Weights", config: "ModelConfig", device: "torch.device"
) -> "Streaming | None":
    """Through which the experts come that prompts lack; None where all are on the card."""
    from strata.ops.tiers.prompts import streaming

    if tier is None:
        return None
    return streaming(tier, [layer.moe for layer in weights.layers], config.moe.topk, device)


@contextmanager
def still(tier: "Tier | None") -> "Iterator[None]":
    """Nothing that is launched inside really runs: the tier learns nothing of it and moves nothing."""
    if tier is not None:
        tier.still = True
    try:
        yield
    finally:
        if tier is not None:
            tier.still = False


def processors(threads: int | None) -> "Sequence[int | None]":
    """Where the host's threads run: one a core, less one, unless somebody says how many."""
    from strata.experts.pool import choose, read

    cpus = choose(read(), threads).cpus
    return cpus if threads is not None or len(cpus) <= 2 * LEFT else cpus[:-LEFT]
