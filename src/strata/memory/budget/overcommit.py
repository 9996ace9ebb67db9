"""Whether video memory is over-committed: hits go up, and speed goes down all the same.

Where more is taken than there is, some drivers (Windows, WSL, unified memory) say nothing: they move pages over the
link behind everybody's back. Every expert is then a hit, and a window waits for it longer than for a miss. No error
tells of this; the sign is that windows become much slower while the hit rate is as high as it was or higher. One
report had 102 tokens a second with an honest cache and 13.7 with a larger one that hit more often.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

SPAN = 16
"""Observations that are looked at together: a median of so many is not moved by a few slow ones."""

SLOWER = 0.6
"""Share of the best speed below which windows are too slow; a context that grows to 128K costs less than a fifth."""

ALIKE = 100
"""Hit rates are told apart to so many parts of the whole."""


@dataclass(frozen=True, slots=True)
class Overcommit:
    """What was seen.

    Attributes:
        hits: of late, 0 to 1.
        speed: of late, windows a second.
        best_hits: when windows were fastest, without more hits than now.
        best_speed: then.
    """

    hits: float
    speed: float
    best_hits: float
    best_speed: float

    def __str__(self) -> str:
        return (
            f"video memory seems to be over-committed: {100 * self.hits:.0f}% of the experts are found there, as many "
            "as "
            f"before ({100 * self.best_hits:.0f}%), but windows take {self.best_speed / self.speed:.1f} times as long; "
            "something else took VRAM, or the plan counts on more than there is. Leave more of it free (--headroom)"
        )


class Detector:
    """Watches windows of one kind. It forgets when memory is given back or taken (`reset`).

    Windows of different numbers of rows take different times: feed those of one number, or one detector for each.
    """

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=SPAN)
        self._best: dict[int, float] = {}  # the best speed of a span by its hits
        self._new = 0

    def reset(self) -> None:
        """Begin anew: the cache has another size now."""
        self._late.clear()
        self._best.clear()
        self._new = 0

    def seen(self, hits: float, speed: float) -> Overcommit | None:
        """Note one window, or some.

        Args:
            hits: share of the experts visited that were in VRAM, 0 to 1.
            speed: windows a second (or anything that grows with it).

        Returns:
            What is wrong; None while nothing is, or too little was seen.
        """
        self._late.append((hits, speed))
        self._new += 1
        if self._new < SPAN:
            return None
        now, speed = median(hit for hit, _ in self._late), median(speed for _, speed in self._late)
        place = round(ALIKE * now)
        # As fast as windows were at most with no more hits than now; more hits may only make them faster.
        known = [(best, hit / ALIKE) for hit, best in self._best.items() if hit <= place + 1]
        if known and speed < SLOWER * max(known)[0]:
            best_speed, best_hits = max(known)
            return Overcommit(now, speed, best_hits, best_speed)
        self._new = 0
        self._best[place] = max(speed, self._best.get(place, 0.0))
        return None
