"""Short prompts where some experts are in VRAM: how many of the others they visit, and what the link takes for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.generator import Routing, Rows

LENGTHS = (17, 50, 100, 200, 400, 1000)
"""Tokens of prompts."""

STORED = 2_176_000
"""Bytes of an expert of the released shapes in the file: what crosses."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of one length at one size of the cache.

    Attributes:
        size: percent of all experts that are in VRAM.
        tokens: of a prompt.
        visited: experts of a layer that a prompt visits, on average.
        missed: of them those that are not in VRAM.
        missing: experts of a layer that are not in VRAM.
        link_ms: to bring the missed ones of all layers.
        all_ms: to bring all that are missing.
    """

    size: float
    tokens: int
    visited: float
    missed: float
    missing: float
    link_ms: float
    all_ms: float

    @property
    def share(self) -> float:
        """Of what is missing, what is visited."""
        return self.missed / self.missing if self.missing else 0.0


def read(
    routing: Routing, sizes: Sequence[float], learned: int, gbs: float, *, others: int, prompts: int = 4
) -> Iterator[Prompts]:
    """Let conversations begin with prompts.

    Args:
        routing: of a model.
        sizes: percent of all experts that are in VRAM: those that other conversations visit most.
        learned: rows of those.
        gbs: GB/s of the link.
        others: number of the first of those.
        prompts: how many conversations; each is read to the longest length.
    """
    c = routing.character
    counts = np.zeros((c.layers, c.experts), np.int64)
    for _, rows in routing.rows(learned, others):
        counts += _visits(rows, c.experts)
    order = np.argsort(-counts.ravel(), kind="stable")
    texts = [routing.conversation(number).rows(max(LENGTHS)) for number in range(prompts)]
    for size in sizes:
        here = np.zeros(counts.size, np.bool_)
        here[order[: round(size / 100 * counts.size)]] = True
        away = ~here.reshape(counts.shape)
        for tokens in LENGTHS:
            met = [_visits(text[:tokens], c.experts) > 0 for text in texts]
            visited, missed = (float(np.mean([one.sum() for one in some])) for some in (met, [m & away for m in met]))
            missing = float(away.sum())
            ms = STORED / gbs / 1e6
            yield Prompts(
                size, tokens, visited / c.layers, missed / c.layers, missing / c.layers, missed * ms, missing * ms
            )


def _visits(rows: Rows, experts: int) -> NDArray[np.int64]:
    """[L, E]: rows that visit each expert."""
    layers = rows.shape[1]
    keys = rows.astype(np.int64) + np.arange(layers)[:, None] * experts
    return np.bincount(keys.ravel(), minlength=layers * experts).reshape(layers, experts)
