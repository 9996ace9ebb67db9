"""How fast the CPU's kernels get through weights, on the pool's threads: matrices and whole experts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.experts.compute import Expert, Stored, experts, product
from strata.experts.pool import Pool
from strata.formats import by_name
from strata.lab.rates.blocks import blocks
from strata.lab.rates.rounds import Pace, Sample

COMMON = ("IQ2_XS", "IQ3_XXS", "IQ4_NL", "Q4_K", "Q6_K", "Q8_0")
"""Block types of usual files."""

WIDTH, INNER, EXPERTS_OF_A_ROW = 2560, 640, 10
"""Of the released model."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Experts of one kind.

    Attributes:
        gate: block type of the gate matrix.
        up: of the up matrix.
        down: of the down matrix.
        hidden: H.
        inner: I.
        topk: experts of a row.
    """

    gate: str = "IQ3_XXS"
    up: str = "IQ3_XXS"
    down: str = "IQ4_NL"
    hidden: int = WIDTH
    inner: int = INNER
    topk: int = EXPERTS_OF_A_ROW

    @property
    def types(self) -> str:
        """In words."""
        return f"{self.gate}/{self.up}/{self.down}"

    @property
    def shapes(self) -> tuple[tuple[str, int, int], ...]:
        """Type, rows and width of gate, up and down."""
        wide, tall = (self.inner, self.hidden), (self.hidden, self.inner)
        return (self.gate, *wide), (self.up, *wide), (self.down, *tall)

    @property
    def nbytes(self) -> int:
        """Of an expert as a file has it."""
        return sum(rows * by_name(name).row_bytes(width) for name, rows, width in self.shapes)


class Products:
    """A matrix of one type, larger than the caches, to be multiplied with some rows.

    Args:
        name: of its block type.
        nbytes: of it, about.
        pool: who computes.
        pace: how often.
    """

    def __init__(self, name: str, nbytes: int, pool: Pool, pace: Pace) -> None:
        kind = by_name(name)
        self._raw = blocks(name, max(8, nbytes // kind.row_bytes(WIDTH)), WIDTH)
        self._matrix = Stored(kind, self._raw)
        self._pool, self._pace = pool, pace

    def rows(self, count: int) -> Sample:
        """GB/s of weights while it is multiplied with so many rows at once."""
        x = np.random.default_rng(1).standard_normal((count, WIDTH)).astype(np.float32)
        return self._pace.timed(lambda: product(self._pool, self._matrix, x)).rate(self._raw.nbytes / 1e9)


class Experts:
    """A layer's experts, together larger than the caches.

    Args:
        mix: of what types and sizes.
        nbytes: of all of them, about.
        pool: who computes.
        pace: how often.
    """

    def __init__(self, mix: Mix, nbytes: int, pool: Pool, pace: Pace) -> None:
        self._mix, self._pool, self._pace = mix, pool, pace
        self._count = max(8 * mix.topk, nbytes // mix.nbytes)
        shapes = mix.shapes
        raws = [blocks(name, self._count * n, k).reshape(self._count, n, -1) for name, n, k in shapes]
        self._layer = Expert(*(Stored(by_name(name), raw) for (name, _, _), raw in zip(shapes, raws, strict=True)))
        self._rng = np.random.default_rng(2)

    def rows(self, count: int) -> Sample:
        """Microseconds of an expert, of as many as so many rows visit that all go elsewhere."""
        mix = self._mix
        x = self._rng.standard_normal((count, mix.hidden)).astype(np.float32)
        weights = np.full((count, mix.topk), 0.1, np.float32)
        took = self._pace.timed(lambda: experts(self._pool, self._layer, x, self._route(count), weights), before=3)
        return took.times(1e6 / (count * mix.topk))

    def _route(self, count: int) -> NDArray[np.int64]:
        """Experts of some rows, none of them twice."""
        return self._rng.permutation(self._count)[: count * self._mix.topk].reshape(count, -1).astype(np.int64)
