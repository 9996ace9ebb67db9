"""How much of what is missing a pass visits, learned from the passes before."""

from math import exp, log

EVEN = 0.25
"""What is believed before anything was met: rows visit as many experts as a quarter of them would that choose evenly."""

LATEST = 0.5
"""How much the latest pass counts against all before."""

FARTHEST = 4.0
"""Times what was believed, that one pass may say at most: a prompt of one word a thousand times is no rule."""


class Share:
    """Experts that rows choose evenly are all visited soon: 98% of 512 by 200 rows. Real rows agree with one another.

    T rows visit 1 - (1 - topk / E)^(skew T) of the experts that are missing, and `skew`, 1 where they choose evenly, is
    what is learned. What is missing is what is seldom visited, which is part of it.

    Args:
        topk: experts a row visits.
        experts: of a layer.
    """

    def __init__(self, topk: int, experts: int) -> None:
        self._avoids = log(1.0 - topk / experts) if topk < experts else -50.0
        self.skew = EVEN

    def of(self, rows: int) -> float:
        """What so many rows will visit, 0 to 1."""
        return 1.0 - exp(self._avoids * self.skew * rows)

    def met(self, rows: int, visited: int, missing: int) -> None:
        """So many rows visited so many of what was missing."""
        if not missing:
            return
        left = max(missing - visited, 0.5) / missing
        found = log(left) / (self._avoids * rows)
        if visited >= missing:
            found = max(found, self.skew)  # all were visited: it is at least so much
        found = min(1.0, FARTHEST * self.skew, max(found, self.skew / FARTHEST))
        self.skew = exp((1.0 - LATEST) * log(self.skew) + LATEST * log(found))
