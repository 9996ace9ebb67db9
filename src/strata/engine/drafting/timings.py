"""What windows and draft steps take on this machine, learned from every conversation that shares the object."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from strata.engine.drafting.misses import Misses

RECENT = 9
"""Times that are remembered of each kind."""

KEPT = 1000
"""Windows after which a time counts no more: conversations grow, and an unlucky time must not decide for ever."""

HOPE = 0.1
"""What a further row is taken to cost, in windows of one row, until it has been tried."""


LEAST = 0.1
"""Share of a window's time that no number of misses explains away, should a miss be cheaper than it was measured."""


@dataclass(frozen=True, slots=True)
class Start:
    """What was measured of this model on this machine before, in seconds.

    Attributes:
        windows: times by rows, misses included; of one row, too.
        step: of a step of the draft head; None if there is none.
        misses: experts that such windows missed, by rows.
    """

    windows: Mapping[int, float]
    step: float | None = None
    misses: Mapping[int, float] = field(default_factory=dict)


class Timings:
    """Times in seconds. Which depth they lead to never changes a text.

    What was measured before counts until something is tried: its proportions, for a conversation that is long or a
    machine that is busy makes windows of any size slower.

    Attributes:
        miss: time of one miss of an expert, as measured on this machine; 0 where all are in the card's memory.
    """

    def __init__(self, miss: float = 0.0, start: Start | None = None) -> None:
        self.miss = miss
        self._before: dict[int, float] = {}  # by rows: times without misses
        self._step = None if start is None else start.step
        self._misses = Misses()
        for rows, seconds in () if start is None else start.windows.items():
            missed = start.misses.get(rows, 0.0) if start else 0.0
            self._before[rows] = self._without(seconds, missed)
            if miss:
                self._misses = self._misses.after(rows, round(missed))
        self._windows: dict[int, deque[tuple[int, float]]] = {}  # by rows: number of the window, its time
        self._steps: deque[float] = deque(maxlen=RECENT)
        self._count = 0

    @property
    def started(self) -> bool:
        """Whether it is known what one row takes."""
        return 1 in self._windows or 1 in self._before

    @property
    def step(self) -> float | None:
        """Time of one step of the draft head, if it has been tried."""
        if self._steps:
            return _usual(self._steps)
        return None if self._step is None else self._step * self._slower

    def drafted(self, steps: int, seconds: float) -> None:
        """`steps` draft steps took this long."""
        if steps:
            self._steps.append(seconds / steps)

    def computed(self, rows: int, seconds: float, misses: int = 0) -> None:
        """A window of one conversation's rows took this long and missed so many experts."""
        self._count += 1
        if self.miss:
            self._misses = self._misses.after(rows, misses)
        seconds = self._without(seconds, misses)
        self._windows.setdefault(rows, deque(maxlen=RECENT)).append((self._count, seconds))

    def misses(self, rows: int) -> float:
        """Misses to be expected of a window."""
        return self._misses.expected(rows) if self.miss else 0.0

    def window(self, rows: int) -> float:
        """Time of a window without misses: as measured, or as the nearest measured ones suggest, if rows are cheap.

        One row must have been measured, or be known from before; its times are never too old. A window is no dearer
        than those of more rows: while drafts are made nothing else would correct a time of one row that was taken in a
        bad moment.
        """
        measured = {
            n: _usual(seconds for _, seconds in times)
            for n, times in self._windows.items()
            if n == 1 or times[-1][0] > self._count - KEPT
        }
        if self._before:
            measured = {n: time * self._slower for n, time in self._before.items()} | measured
        known = {n: min(time for m, time in measured.items() if m >= n) for n in measured}
        if rows in known:
            return known[rows]
        below = max(n for n in known if n < rows)
        above = [n for n in known if n > rows]
        if above:
            top = min(above)
            return known[below] + (known[top] - known[below]) * (rows - below) / (top - below)
        return known[below] + known[1] * HOPE * (rows - below)

    @property
    def _slower(self) -> float:
        """How many times as long windows take as they did when they were measured before."""
        both = self._windows.keys() & self._before.keys()
        ratios = (_usual(seconds for _, seconds in self._windows[n]) / self._before[n] for n in both)
        return median(ratios) if both else 1.0

    def _without(self, seconds: float, misses: float) -> float:
        """Time of a window as it would have been without its misses."""
        return max(seconds - misses * self.miss, LEAST * seconds) if self.miss else seconds


def _usual(seconds: Iterable[float]) -> float:
    """The lower quartile: whatever else the machine does meanwhile only ever lengthens some of the times."""
    times = sorted(seconds)
    return times[len(times) // 4]
