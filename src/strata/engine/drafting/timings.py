"""What windows and draft steps take on this machine, learned from every conversation that shares the object."""

from collections import deque
from statistics import median

RECENT = 9
"""Times of which the median counts: whatever else the machine does meanwhile only ever lengthens some of them."""

HOPE = 0.1
"""What a further row is taken to cost, in windows of one row, until it has been tried."""


class Timings:
    """Times in seconds. Which depth they lead to never changes a text."""

    def __init__(self) -> None:
        self._windows: dict[int, deque[float]] = {}  # by rows
        self._steps: deque[float] = deque(maxlen=RECENT)

    @property
    def started(self) -> bool:
        """Whether it is known what one row takes."""
        return 1 in self._windows

    @property
    def step(self) -> float | None:
        """Time of one step of the draft head, if it has been tried."""
        return median(self._steps) if self._steps else None

    def drafted(self, steps: int, seconds: float) -> None:
        """`steps` draft steps took this long."""
        if steps:
            self._steps.append(seconds / steps)

    def computed(self, rows: int, seconds: float) -> None:
        """A window of one conversation's rows took this long."""
        self._windows.setdefault(rows, deque(maxlen=RECENT)).append(seconds)

    def window(self, rows: int) -> float:
        """Time of a window: as measured, or as the nearest measured ones suggest, hoping that rows are cheap.

        One row must have been measured.
        """
        known = {n: median(times) for n, times in tuple(self._windows.items())}
        if rows in known:
            return known[rows]
        below = max(n for n in known if n < rows)
        above = [n for n in known if n > rows]
        if above:
            top = min(above)
            return known[below] + (known[top] - known[below]) * (rows - below) / (top - below)
        return known[below] + known[1] * HOPE * (rows - below)
