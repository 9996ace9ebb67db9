"""Quantising to a codebook: codewords, signs, 4-bit group scales and one float16 scale per 256 weights."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8
from strata.formats.codebooks.grids import grid
from strata.formats.codebooks.nearest import nearest
from strata.formats.codebooks.signs import fold
from strata.formats.fields import as_half
from strata.formats.scales import dot, fit_scale, inverse, nearest_blocks, ratio

# The largest magnitude of a group is laid on these multiples of the grid's highest level. Four times as many, or
# trying the neighbours of every rounded scale, or further rounds of refitting, each gain less than 0.3%.
_FACTORS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)


@dataclass(frozen=True, slots=True)
class Fit:
    """One block's numbers, as they are stored."""

    d: F32  # [n, 1], float16 values
    scales: U8  # [n, groups], 0..15
    index: NDArray[np.intp]  # [n, 256 // k]
    signs: U8  # [n, 32], bit j of byte i for weight 8 i + j


@dataclass(frozen=True, slots=True)
class Codebook:
    """A weight is ``d * (first + step * scale) * codeword * sign``.

    Attributes:
        name: of the grid.
        group: weights that share a 4-bit scale.
        first: multiplier for scale 0, a power of two.
        step: what one more scale adds.
        even: whether the minus signs of eight weights are even in number.
    """

    name: str
    group: int
    first: float
    step: float
    even: bool

    def quantise(self, x: F32, pack: Callable[[Fit], U8], dequantise: Callable[[U8], F32]) -> U8:
        """``float32 [n, 256] -> uint8 [n, bytes]``: the better of `fitted` and `flat` for every block."""
        magnitudes, signs = fold(x.reshape(len(x), -1, 8), even=self.even)
        groups = magnitudes.reshape(len(x), 256 // self.group, -1, grid(self.name).shape[1])
        options = [pack(fit(groups, signs)) for fit in (self.fitted, self.flat)]
        return nearest_blocks(x, options, dequantise)

    def fitted(self, groups: F32, signs: U8) -> Fit:
        """Search each group's scale, round it to 4 bits, choose codewords, refit d, choose codewords again.

        Args:
            groups: magnitudes, ``float32 [n, groups, vectors, k]``.
            signs: ``uint8 [n, 32]``.
        """
        wanted = self._search(groups)
        d = as_half(wanted.max(axis=1, keepdims=True) / np.float32(self.first + 15 * self.step))
        steps = (wanted * inverse(d) - np.float32(self.first)) / np.float32(self.step)
        scales = np.clip(np.rint(steps), 0, 15)
        multipliers = np.float32(self.first) + np.float32(self.step) * scales
        u = grid(self.name)[self._index(groups, d * multipliers)] * multipliers[..., None, None]
        u, x = u.reshape(len(u), -1), groups.reshape(len(groups), -1)
        d = as_half(ratio(dot(x, u), dot(u, u)))
        return self._fit(groups, signs, d, scales)

    def flat(self, groups: F32, signs: U8) -> Fit:
        """All groups at scale 0, the block's peak on the highest level: the fallback."""
        highest = grid(self.name).max()
        d = as_half(np.abs(groups).max(axis=(1, 2, 3))[:, None] / highest) / np.float32(self.first)
        return self._fit(groups, signs, d, np.zeros(groups.shape[:2], dtype=np.float32))

    def _fit(self, groups: F32, signs: U8, d: F32, scales: F32) -> Fit:
        index = self._index(groups, d * (np.float32(self.first) + np.float32(self.step) * scales))
        return Fit(d, scales.astype(np.uint8), index.reshape(len(groups), -1), signs)

    def _index(self, groups: F32, scale: F32) -> NDArray[np.intp]:
        return nearest(groups * inverse(scale)[..., None, None], grid(self.name))

    def _search(self, groups: F32) -> F32:
        """Least-squares scale of each group for the best of a few first guesses: ``float32 [n, groups]``."""
        words = grid(self.name)

        def encode(x: F32) -> F32:
            return words[nearest(x.reshape(groups.shape), words)].reshape(x.shape)

        highest = float(words.max())
        flat = groups.reshape(*groups.shape[:2], self.group)
        return fit_scale(flat, [highest * factor for factor in _FACTORS], encode)[..., 0]
