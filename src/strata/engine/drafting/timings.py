"""What windows and draft steps take on this machine, learned from every conversation that shares the object."""

from collections import deque
from collections.abc import Iterable

from strata.engine.drafting.misses import Misses

RECENT = 9
"""Times that are remembered of each kind."""

KEPT = 1000
"""Windows after which a time counts no more: conversations grow, and an unlucky time must not decide for ever."""

HOPE = 0.1
"""What a further row is taken to cost, in windows of one row, until it has been tried."""


LEAST = 0.1
"""Share of a window's time that no number of misses explains away, should a miss be cheaper than it was measured."""


class Timings:
    """Times in seconds. Which depth they lead to never changes a text.

    Attributes:
        miss: time of one miss of an expert, as measured on this machine; 0 where all are in the card's memory.
    """

    def __init__(self, miss: float = 0.0) -> None:
        self.miss = miss
        self._misses = Misses()
        self._windows: dict[int, deque[tuple[int, float]]] = {}  # by rows: number of the window, its time
        self._steps: deque[float] = deque(maxlen=RECENT)
        self._count = 0

    @property
    def started(self) -> bool:
        """Whether it is known what one row takes."""
        return 1 in self._windows

    @property
    def step(self) -> float | None:
        """Time of one step of the draft head, if it has been tried."""
        return _usual(self._steps) if self._steps else None

    def drafted(self, steps: int, seconds: float) -> None:
        """`steps` draft steps took this long."""
        if steps:
            self._steps.append(seconds / steps)

    def computed(self, rows: int, seconds: float, misses: int = 0) -> None:
        """A window of one conversation's rows took this long and missed so many experts."""
        self._count += 1
        if self.miss:
            self._misses = self._misses.after(rows, misses)
            seconds = max(seconds - misses * self.miss, LEAST * seconds)
        self._windows.setdefault(rows, deque(maxlen=RECENT)).append((self._count, seconds))

    def misses(self, rows: int) -> float:
        """Misses to be expected of a window."""
        return self._misses.expected(rows) if self.miss else 0.0

    def window(self, rows: int) -> float:
        """Time of a window without misses: as measured, or as the nearest measured ones suggest, if rows are cheap.

        One row must have been measured; its times are never too old. A window is no dearer than those of more rows:
        while drafts are made nothing else would correct a time of one row that was taken in a bad moment.
        """
        measured = {
            n: _usual(seconds for _, seconds in times)
            for n, times in self._windows.items()
            if n == 1 or times[-1][0] > self._count - KEPT
        }
        known = {n: min(time for m, time in measured.items() if m >= n) for n in measured}
        if rows in known:
            return known[rows]
        below = max(n for n in known if n < rows)
        above = [n for n in known if n > rows]
        if above:
            top = min(above)
            return known[below] + (known[top] - known[below]) * (rows - below) / (top - below)
        return known[below] + known[1] * HOPE * (rows - below)


def _usual(seconds: Iterable[float]) -> float:
    """The lower quartile: whatever else the machine does meanwhile only ever lengthens some of the times."""
    times = sorted(seconds)
    return times[len(times) // 4]
