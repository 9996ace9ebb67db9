"""How often each expert was visited lately: counts that fade, without touching those that were not visited."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strata.memory.slots.rule import Rule

LARGEST = 1e100
"""A visit's weight from which all counts are scaled back; once in 7,500 windows at a decay of 0.97."""

NOTHING = 1e-6
"""Of a count that fades to less than this in one window nothing is kept."""


class Fading:
    """One count of each expert that fades by `decay` a window.

    Instead of making all old visits lighter, each window's visits weigh 1 / decay times as much as the window's
    before, so a window costs as much as it has visits and not as much as there are experts.

    Attributes:
        sums: float64 [experts], weighted visits.
        weight: of a visit in the newest window.
    """

    def __init__(self, sums: "NDArray[np.float64]", decay: float) -> None:
        """Count in `sums`, which hold zeros."""
        self.sums = sums
        self.weight = 1.0
        self._decay = decay

    def advance(self) -> None:
        """A new window begins."""
        if self._decay < NOTHING:
            self.sums[:] = 0.0
            return
        self.weight /= self._decay
        if self.weight > LARGEST:
            self.sums /= self.weight
            self.weight = 1.0

    def counts(self) -> "NDArray[np.float64]":
        """Counts of all, in visits."""
        return self.sums / self.weight

    def set(self, counts: "NDArray[np.floating]") -> None:
        """Go on from these counts."""
        self.sums[:] = counts.ravel()
        self.weight = 1.0


class Usage:
    """The count that experts are compared by: one that fades quickly, and a share of one that fades slowly.

    Attributes:
        sums: float64 [experts, 2], the weighted visits of both, beside each other so that one look finds both.
        quick: the quick count.
        slow: the slow count.
    """

    def __init__(self, size: int, rule: "Rule") -> None:
        """Nothing was visited yet."""
        self.sums = np.zeros((size, 2))
        self.quick = Fading(self.sums[:, 0], rule.decay)
        self.slow = Fading(self.sums[:, 1], rule.slow)
        self._share = rule.share

    def advance(self) -> None:
        """A new window begins."""
        self.quick.advance()
        self.slow.advance()

    @property
    def scales(self) -> tuple[float, float]:
        """What each sum is to be multiplied by in the sum of both."""
        return 1.0 / self.quick.weight, self._share / self.slow.weight

    def counts(self) -> "NDArray[np.float64]":
        """Counts of all, in visits."""
        quick, slow = self.scales
        return self.sums[:, 0] * quick + self.sums[:, 1] * slow
