"""Bytes with experts on a disk: windows and prompts over RAM that holds few of them, against all on the device."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from figures.correct import computed, different, residuals
from figures.model import Model
from figures.session import Session
from strata.errors import StrataError
from strata.experts.misses import Costs
from strata.loading import tiers
from strata.memory.arena import stacks_of
from strata.memory.reads import Readers, ReadFile
from strata.memory.slots import SlotCache
from strata.memory.tier import Stock
from strata.ops.tiers import ram as rams
from strata.ops.tiers.tier import TierOptions

SHARES = ((0.0, 0.05), (1 / 3, 0.2), (1 / 3, 1.0))
"""Of the experts in slots, and in RAM."""

TIMES = 40
"""Windows of each shape at most: most of them wait for the disk."""


@contextmanager
def stock(model: Model, share: float) -> Iterator[Stock]:
    """RAM for a share of the experts; the rest is read from the model's file."""
    files = [(file.buffer, ReadFile(file.path)) for file in model.directory.data_files]
    raws: Any = [(layer.moe.gate, layer.moe.up, layer.moe.down) for layer in model.weights.layers]
    readers = Readers()
    each = max(1, round(share * model.config.moe.E))
    found = Stock([stacks_of([m.raw for m in parts], files) for parts in raws], readers, shares=[each] * model.layers)
    try:
        yield found
    finally:
        readers.close()
        found.close()


def disk(session: Session) -> dict[str, Any]:
    """Windows and prompts with slots that change and experts that come and go in RAM.

    Raises:
        StrataError: a byte differs, or nothing was read from the disk where there was no room.
    """
    model = Model(session.small_path, session.device, session.sizes.context)
    times, lengths = min(TIMES, session.sizes.times), session.sizes.lengths
    network, _ = model.network(ahead=True)
    expected, read = computed(network, 7, times), {n: residuals(network, n) for n in lengths}
    del network
    found: dict[str, Any] = {"windows": len(expected), "different": 0}
    for slots, share in SHARES:
        with stock(model, share) as here:
            each = model.config.moe.E
            total = tuple(max(1, round(slots * each * model.classes.count(i))) for i in range(len(model.sizes)))
            cache = SlotCache(model.sizes, model.classes, total, experts=each)
            options = TierOptions(tuple(tiers.processors(None)), Costs(1, 1), every=1, moves=64)
            ram = rams.stocked(here, on_gpu=session.device.type == "cuda")
            network, tier = model.network(cache, total, options, ram=ram, ahead=len(found) == 2)
            assert tier is not None
            name = f"{slots:.0%} in VRAM, {share:.0%} in RAM"
            wrong = different(expected, computed(network, 7, times))
            rows = sum(int((residuals(network, n) != read[n]).any(1).sum()) for n in lengths)
            wrong += different(expected, computed(network, 7, times))
            found["different"] += wrong + rows
            found[name] = {"windows": wrong, "rows": rows, **asdict(tier.total), "ram": asdict(here.stats)}
            session.say(f"{name}: {wrong} windows and {rows} rows of prompts differ; {here.stats}")
            session.keep(found)
            tier.close()
            unread = share < 1.0 and not tier.total.ssd
            del network, tier, ram
            gc.collect()
        if unread:
            raise StrataError(f"{name}: no window read anything from the disk, so nothing was compared")
    if found["different"]:
        raise StrataError(f"{found['different']} windows or rows differ")
    return found
