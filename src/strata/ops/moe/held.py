"""Experts of which memory holds a part: those that are here are computed while the others are read."""

from contextlib import closing
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from strata.experts import compute
from strata.memory.tier import ExpertTier
from strata.model import weights
from strata.model.ops import Route
from strata.ops import workers


@dataclass(frozen=True, slots=True, eq=False)
class HeldMoe(weights.Moe):
    """A layer whose experts are in a tier. Its matrices are views of the file that nobody reads.

    Attributes:
        tier: has them.
        number: of the layer, in the tier.
        compiled: the experts where the tier has them.
    """

    tier: ExpertTier
    number: int
    compiled: compute.Expert


def held(moe: weights.Moe, tier: ExpertTier, number: int) -> HeldMoe:
    """A layer's experts in a tier."""
    parts = []
    for part, places in zip((moe.gate, moe.up, moe.down), tier.addresses(number), strict=True):
        assert isinstance(part, weights.Quantised), "the tier found them in the file"
        parts.append(compute.Stored(part.type, part.raw, part.scale, places=(places, tier.end)))
    own = {field.name: getattr(moe, field.name) for field in fields(weights.Moe)}
    return HeldMoe(**own, tier=tier, number=number, compiled=compute.Expert(*parts))


def experts(m: Tensor, chosen: Route, w: HeldMoe) -> Tensor:
    """Weighted sum of each row's experts in the router's order: [T, H], the bytes of `strata.experts.compute.experts`.

    Where all are here that is one call. Else each group that arrives is computed at once, and the rows of all pairs are
    weighed and added at the end, in the same order and with the same roundings.

    Raises:
        StorageError: the disk failed.
    """
    x, ids, shares = (part.contiguous().numpy() for part in (m, chosen.experts, chosen.weights))
    wanted = np.unique(ids)
    rows: np.ndarray | None = None
    pool = workers.current()
    with closing(w.tier.visit(w.number, wanted)) as groups:
        for group in groups:
            if len(group) == len(wanted):
                return torch.from_numpy(compute.experts(pool, w.compiled, x, ids, shares))
            if rows is None:
                rows = np.empty((*ids.shape, x.shape[1]), np.float32)
            here = np.zeros(w.tier.experts, np.bool_)
            here[group] = True
            t, j = np.nonzero(here[ids])
            only, one = ids[t, j][:, None], np.ones((len(t), 1), np.float32)
            rows[t, j] = compute.experts(pool, w.compiled, x[t], only, one)
    assert rows is not None, "a row visits at least one expert"
    out = np.zeros_like(x)
    for place in range(ids.shape[1]):
        out += shares[:, place : place + 1] * rows[:, place]
    return torch.from_numpy(out)
