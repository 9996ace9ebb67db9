"""Experts that a measurement may ask for."""

import numpy as np
from numpy.typing import NDArray

from strata.ops.tiers.tier import Tier


def here(tier: Tier, layer: int, count: int, *, shown: bool = False) -> tuple[int, NDArray[np.int32]]:
    """A layer of which RAM has at least so many experts, this one if it is one, and those; some twice if it must be."""
    every = np.arange(tier.table.shape[1], dtype=np.int32)
    if tier.supply is None:
        return layer, every
    stock = tier.supply.stock
    here = stock.shown if shown else np.stack([stock.here(i) for i in range(len(tier.layers))])
    if here[layer].sum() < count:
        layer = int(here.sum(1).argmax())
    found = every[here[layer]] if here[layer].any() else every
    return layer, np.resize(found, max(count, len(found)))
