"""Experts that find no place on the card: how much of it they get, and the tiers they lie in."""

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from strata.errors import RequestError
from strata.loading.shown import shown_bytes
from strata.memory.budget.least import fewest_held
from strata.memory.budget.plan import Arena

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from strata.gguf import TensorDirectory
    from strata.loading.learned import Learned
    from strata.loading.storage import Storage
    from strata.memory.budget import Plan
    from strata.memory.slots import SlotCache
    from strata.memory.tier import Stock
    from strata.model import ModelConfig
    from strata.model.weights import Moe, Weights
    from strata.ops.prompt.stream.streaming import Streaming
    from strata.ops.tiers.loan import Loan
    from strata.ops.tiers.tier import Tier

log = logging.getLogger("strata.loading")

ROOM = 32
"""Experts the link may bring for one layer; each takes a place for its blocks and one for its planes."""

LEFT = 1
"""Processors that the host's threads leave to everybody else."""


def transit_bytes(slot: int, stored: int, topk: int, experts: int) -> int:
    """Bytes on the card for experts on their way: to windows and short prompts, which take turns there, and to slots.

    Args:
        slot: bytes of the largest expert there.
        stored: bytes of the largest in the file.
        topk: experts a row chooses.
        experts: of a layer.
    """
    from strata.ops.tiers.sizes import TOGETHER, room_bytes

    return room_bytes(slot, stored, room(topk, experts)) + TOGETHER * stored


def room(topk: int, experts: int) -> int:
    """Experts that the link may bring for one layer: no more than eight rows can miss."""
    return min(ROOM, 8 * topk, experts)


def buffers(experts: int) -> int:
    """Experts of the ring for long prompts: three groups, together no more than a layer has."""
    from strata.ops.tiers.sizes import BUFFERS

    return min(BUFFERS, 3 * -(-experts // 3))


def check(made: "Plan") -> None:
    """Refuse a plan that leaves RAM too few experts of some size for a window.

    Raises:
        RequestError: says how many there would be, and what would help.
    """
    if made.resident or made.arena not in {Arena.COMPLEMENT, Arena.PART}:
        return
    least = fewest_held(made.sizes)
    short = [one for one in made.classes if one.in_ram < min(least, one.experts - one.in_vram)]
    if short:
        one = short[0]
        raise RequestError(
            f"experts without a slot in VRAM are computed from RAM, which needs at least {least} of each size at a "
            f"time; of the {shown_bytes(made.machine.ram)} that may be taken there is room for {one.in_ram} of "
            f"{shown_bytes(one.held)} each; what would help: more RAM (--ram), a smaller file, or --device cpu"
        )


def build(
    weights: "Weights",
    config: "ModelConfig",
    made: "Plan",
    device: "torch.device",
    threads: int | None,
    on_bytes: "Callable[[int], None] | None" = None,
    source: "Source | None" = None,
    learned: "Learned | None" = None,
) -> "Tier":
    """Put experts into RAM, all or as many as the plan has there, and into slots as many as it has.

    Args:
        weights: as the file stores them.
        config: dimensions.
        made: the plan.
        device: where they are.
        threads: of the host; None for one a core, less one.
        on_bytes: called with bytes that have come into RAM.
        source: the file, from which experts are read that RAM does not hold.
        learned: which experts were visited most, and will be.

    Raises:
        StrataError: RAM cannot be locked.
    """
    from strata.loading.calibration.use import starting_costs
    from strata.memory.slots import divide
    from strata.ops.tiers import ram as rams
    from strata.ops.tiers.measure import calibrate
    from strata.ops.tiers.tier import Tier, TierOptions

    moes = [layer.moe for layer in weights.layers]
    kinds, experts = rams.layouts(moes), rams.described(moes)
    sizes, classes, slots = made.slot_cache
    cache = learned.cache(sizes, classes, config.moe.E) if learned else _empty(sizes, classes, config.moe.E)
    # As many bytes as planned, for those that were visited most; where RAM holds all, whatever has no slot.
    if learned and learned.used and made.arena is Arena.ALL:
        slots = divide(made.expert_vram, sizes, classes, config.moe.E, cache.counts())
    for kind, count in enumerate(slots):
        cache.resize(kind, count)
    on_gpu = device.type == "cuda"
    if made.arena in {Arena.COMPLEMENT, Arena.PART} and source is not None:
        held = rams.stocked(source.stock(moes, made), on_gpu=on_gpu)
    elif on_gpu:
        held = rams.registered(moes) or rams.pinned(moes, on_bytes)
    else:
        held = rams.mapped(moes)
    options = replace(TierOptions(), cpus=tuple(processors(threads)), room=room(config.moe.topk, config.moe.E))
    before, same = starting_costs(kinds, len(options.cpus), options.costs)
    if before is not None:
        options = replace(options, costs=before)
    tier = Tier(kinds, experts, held, cache, classes, slots, config.moe.topk, device, options)
    tier.fill(None if held.stock is None else on_bytes)
    if on_gpu:
        log.info("experts in tiers: %s slots, %s", slots, calibrate(tier, before, same=same))
    return tier


def balance(tier: "Tier | None") -> None:
    """Share misses out by what they cost where host and link are at work together."""
    from strata.ops.tiers import measure

    if tier is not None and tier.options.room:
        log.info("experts in tiers, both sides at work: %s", measure.balance(tier))


class Source:
    """A model's file, for experts beyond RAM.

    Args:
        directory: its tensors.
        storage: whose the reading threads and the memory are.
    """

    def __init__(self, directory: "TensorDirectory", storage: "Storage") -> None:
        self._directory, self._storage = directory, storage

    def stock(self, moes: "Sequence[Moe]", made: "Plan") -> "Stock":
        """Slots in RAM, as many as a plan has there."""
        from strata.loading.storage import raw, shares
        from strata.memory.arena import stacks_of
        from strata.memory.reads import Readers, ReadFile
        from strata.memory.tier import Stock

        files = [(file.buffer, ReadFile(file.path)) for file in self._directory.data_files]
        layers = [stacks_of([raw(part) for part in (moe.gate, moe.up, moe.down)], files) for moe in moes]
        readers = Readers()
        self._storage.readers.append(readers)
        self._storage.stock = Stock(layers, readers, shares=shares(made))
        return self._storage.stock


def _empty(sizes: "Sequence[int]", classes: "Sequence[int]", experts: int) -> "SlotCache":
    """A cache that knows nothing and has no slots yet."""
    from strata.memory.slots import SlotCache

    return SlotCache(sizes, classes, [0] * len(sizes), experts=experts)


def prompts(
    tier: "Tier | None",
    weights: "Weights",
    config: "ModelConfig",
    device: "torch.device",
    disk: float,
    passes: tuple[int, int],
) -> "tuple[Streaming | None, Loan | None]":
    """Through which the experts come that prompts lack, and what long ones borrow; None where all are on the card.

    Args:
        tier: where they lie.
        weights: on the device.
        config: of the model.
        device: where it is.
        disk: GB/s that come from the disk, as the plan has it.
        passes: rows of the longest that borrows nothing, and of the longest.
    """
    from strata.ops.gpu.size import work_bytes
    from strata.ops.tiers.loan import Loan
    from strata.ops.tiers.prompts import streaming
    from strata.ops.tiers.sizes import ring_bytes

    if tier is None:
        return None, None
    moes, ring = [layer.moe for layer in weights.layers], buffers(config.moe.E)
    loan = Loan(
        tier, *passes, lambda rows: work_bytes(config, tensor_cores=True, rows=rows),
        ring=ring_bytes(*tier.largest_bytes, ring),
    )  # fmt: skip
    return streaming(tier, moes, config.moe.topk, device, disk=1e3 * disk, wide=ring, loan=loan), loan


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
