"""Layers of experts in tiers, without the rest of a model: what rows visit, and what the judge makes of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from strata.experts import judge
from strata.formats import by_name
from strata.model.weights import Moe, Quantised
from strata.ops.gpu.branches import Branches
from strata.ops.gpu.rows import Rows
from strata.ops.gpu.upload import Upload
from strata.ops.gpu.visits import Visits
from strata.ops.matvec.triton import Activations, quantise
from strata.ops.tiers.tier import Tier
from support.blocks import random_blocks
from support.launch import NATIVE
from support.tiers import ToldCache, tier_of

DEVICE = "cuda" if NATIVE else "cpu"


@dataclass
class Tiered:
    """Some layers; `window` lets random rows visit one after the other."""

    moes: list[Moe]
    topk: int
    tier: Tier
    cache: ToldCache
    rng: np.random.Generator
    layers: list[Any] = field(default_factory=list)
    visits: Any = None

    def __post_init__(self) -> None:
        with Upload(torch.device(DEVICE), tier=self.tier)._feed:
            upload = Upload(torch.device(DEVICE), tier=self.tier)
            self.layers = [upload._moe(moe, self.tier.layers[i]) for i, moe in enumerate(self.moes)]
        config: Any = SimpleNamespace(moe=SimpleNamespace(E=self.experts, topk=self.topk))
        self.visits = Visits(config, torch.device(DEVICE), Branches(graphs=False))

    @property
    def experts(self) -> int:
        return len(self.moes[0].gate.raw)

    def window(
        self, rows: int, spoil: Callable[[Activations], None] = lambda _: None
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """All layers once: what was found, what the judge says, and whose experts had slots, by layer."""
        found = []
        before = self.cache.slot_of.copy()
        self.tier.begin()
        self.tier.window_begun()
        hidden = self.moes[0].gate.shape[2]
        for i, w in enumerate(self.layers):
            x = self.rng.standard_normal((rows, hidden)).astype(np.float32)
            there = torch.from_numpy(x).to(DEVICE)
            a = quantise(there)
            spoil(a)
            m = Rows(there, a)
            route = self.visits.route(m, w)
            y = self.visits.rows(m, route, w).rows
            chosen = route.experts.cpu().numpy()
            q, s = judge.quantise_rows(x)
            expected = [
                judge.expert(*self.judged(i, e), q[t : t + 1], s[t : t + 1])[0] for t in range(rows) for e in chosen[t]
            ]
            count = rows * self.topk
            found.append((y[:count].cpu().numpy(), np.stack(expected), before[i][chosen.reshape(-1)] >= 0))
        self.tier.end(window=True)
        return found

    def judged(self, layer: int, expert: int) -> tuple[judge.Matrix, ...]:
        """An expert as the judge takes it."""
        moe = self.moes[layer]
        return tuple(
            judge.Matrix(m.type, m.raw[expert], None if m.scale is None else m.scale[expert])
            for m in (moe.gate, moe.up, moe.down)
        )

    def close(self) -> None:
        self.tier.close()


def tiered(
    residents: list[tuple[int, int]], *, kinds: tuple[str, str, str] = ("Q8_0",) * 3, layers: int = 2, experts: int = 6,
    topk: int = 2, hidden: int = 64, inner: int = 32, seed: int = 1, **more: Any,
) -> Tiered:  # fmt: skip
    """Random experts, of which some (layer, expert) have slots."""
    rng = np.random.default_rng(seed)
    moes = [_moe(kinds, experts, hidden, inner, rng) for _ in range(layers)]
    weights: Any = SimpleNamespace(layers=[SimpleNamespace(moe=moe) for moe in moes])
    tier, cache = tier_of(weights, residents, topk=topk, device=DEVICE, **more)
    return Tiered(moes, topk, tier, cache, rng)


def _moe(kinds: tuple[str, str, str], experts: int, hidden: int, inner: int, rng: np.random.Generator) -> Moe:
    def matrix(kind: str, *shape: int) -> Quantised:
        scale = rng.uniform(0.5, 2, experts).astype(np.float32) if kind == "NVFP4" and len(shape) == 3 else None
        return Quantised(by_name(kind), random_blocks(kind, shape, rng), scale)

    shapes = ((inner, hidden), (inner, hidden), (hidden, inner))
    gate, up, down = (matrix(kind, experts, *shape) for kind, shape in zip(kinds, shapes, strict=True))
    shared = [matrix("Q8_0", *shape) for shape in shapes]
    numbers = torch.from_numpy(rng.standard_normal((experts + 1, hidden)).astype(np.float32))
    return Moe(numbers[:-1], gate, up, down, numbers[-1], *shared)
