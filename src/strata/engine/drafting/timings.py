"""What windows and draft steps take on this machine, learned from every conversation that shares the object."""

from collections import deque
from collections.abc import Iterable

RECENT = 9
"""Times that are remembered of each kind."""

KEPT = 1000
"""Windows after which a time counts no more: conversations grow, and an unlucky time must not decide for ever."""

HOPE = 0.1
"""What a further row is taken to cost, in windows of one row, until it has been tried."""


class Timings:
    """Times in seconds. Which depth they lead to never changes a text."""

    def __init__(self) -> None:
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

    def computed(self, rows: int, seconds: float) -> None:
        """A window of one conversation's rows took this long."""
        self._count += 1
        self._windows.setdefault(rows, deque(maxlen=RECENT)).append((self._count, seconds))

    def window(self, rows: int) -> float:
        """Time of a window: as measured, or as the nearest measured ones suggest, hoping that rows are cheap.

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
