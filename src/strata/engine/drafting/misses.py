"""How many experts a window of some rows will miss. Pure arithmetic."""

from dataclasses import dataclass

GROWTH = 0.805
"""A window of n rows visits and misses n ** 0.805 times what one row does: 1.75, 2.42 and 3.05 for 2, 3 and 4 rows.
Measured on real text were 1.75, 2.4 and 3.05 (docs/cache.md)."""


@dataclass(frozen=True, slots=True)
class Misses:
    """Misses of one row, learned from windows of any size; old windows fade.

    Attributes:
        one: misses of a window of one row.
        known: windows that were seen, faded.
    """

    one: float = 0.0
    known: float = 0.0

    FADE = 0.9
    """Half of a window's weight is gone after 7 further ones: a topic that changes misses more for a while."""

    def after(self, rows: int, misses: int) -> "Misses":
        """What is known after a window of `rows` rows that missed so many."""
        known = self.known * self.FADE + 1.0
        return Misses(self.one + (misses / rows**GROWTH - self.one) / known, known)

    def expected(self, rows: int) -> float:
        """Misses of a window of `rows` rows."""
        return float(self.one * rows**GROWTH)
