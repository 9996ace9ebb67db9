"""How much of what is missing a pass visits, learned from the passes before."""

from math import exp, log

POWER = 0.65
"""Rows agree with one another, and the more there are the less does one add: T visit as many experts as about T^0.65
would that choose evenly. From made-up routing, where 17 to 1,000 rows meet caches of 15 to 42% (docs/storage.md)."""

USUAL = 0.65
"""Times that, where nothing was met yet; from there, too."""

LATEST = 0.5
"""How much the latest pass counts against all before."""

FARTHEST = 4.0
"""Times what was believed, that one pass may say at most: a prompt of one word a thousand times is no rule."""


class Share:
    """Experts that rows choose evenly are all visited soon: 98% of 512 by 200 rows. Those of real rows are not.

    T rows visit 1 - (1 - topk / E)^(times T^0.65) of the experts that are missing, and `times` is what is learned. What
    is missing is what is seldom visited, which is part of it.

    Args:
        topk: experts a row visits.
        experts: of a layer.

    Attributes:
        times: see above.
    """

    def __init__(self, topk: int, experts: int) -> None:
        self._avoids = log(1.0 - topk / experts) if topk < experts else -50.0
        self.times = USUAL

    def of(self, rows: int) -> float:
        """What so many rows will visit, 0 to 1."""
        return 1.0 - exp(self._avoids * min(rows, self.times * rows**POWER))

    def met(self, rows: int, visited: int, missing: int) -> None:
        """So many rows visited so many of what was missing."""
        if not missing:
            return
        left = max(missing - visited, 0.5) / missing
        found = log(left) / self._avoids / rows**POWER
        if visited >= missing:
            found = max(found, self.times)  # all were visited: it is at least so much
        found = min(FARTHEST * self.times, max(found, self.times / FARTHEST))
        self.times = exp((1.0 - LATEST) * log(self.times) + LATEST * log(found))
