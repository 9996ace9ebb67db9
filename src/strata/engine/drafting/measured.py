"""The depth that pays, from what windows and drafts have cost and gained so far in one conversation."""

from strata.engine.drafting.policy import Acceptance, Costs, best_depth

RETRY = 24
"""Windows without a draft before one is tried again: text changes. One wasted draft in 25 windows costs about 2%."""

WEIGHT = 0.2
"""How much the newest time counts against those before."""

HOPE = 0.1
"""What a further row is taken to cost, in windows of one row, until it has been tried."""


class Measured:
    """Chooses depths and learns from them. Times are in seconds; which depth is chosen never changes the text."""

    def __init__(self, most: int, draft: float | None = None) -> None:
        """Consider depths up to `most`; `draft` is the time of one guess, None if that has to be measured."""
        self._acceptance = Acceptance.hopeful(most)
        self._windows: dict[int, float] = {}  # by rows
        self._draft = draft
        self._idle = 0

    def depth(self, most: int) -> int:
        """The depth for the next window, at most `most`."""
        if most < 1:
            return 0
        if 1 not in self._windows:
            return 0  # the first window says what one row costs
        if self._draft is None:
            return 1
        costs = Costs([self._window(rows) for rows in range(1, most + 2)], self._draft)
        depth = best_depth(self._acceptance.rates[:most], costs)
        if depth == 0 and self._idle >= RETRY:
            return 1
        return depth

    def drafted(self, steps: int, seconds: float) -> None:
        """`steps` draft steps took this long."""
        if steps:
            each = seconds / steps
            self._draft = each if self._draft is None else self._draft + WEIGHT * (each - self._draft)

    def verified(self, guesses: int, accepted: int, seconds: float) -> None:
        """A window with so many guesses took this long, and so many of them were right."""
        rows = guesses + 1
        before = self._windows.get(rows, seconds)
        self._windows[rows] = before + WEIGHT * (seconds - before)
        self._acceptance = self._acceptance.after(guesses, accepted)
        self._idle = 0 if guesses else self._idle + 1

    def _window(self, rows: int) -> float:
        """Time of a window: as measured, or as the nearest measured ones suggest, hoping that rows are cheap."""
        known = self._windows
        if rows in known:
            return known[rows]
        below = max(r for r in known if r < rows)
        above = [r for r in known if r > rows]
        if above:
            top = min(above)
            return known[below] + (known[top] - known[below]) * (rows - below) / (top - below)
        return known[below] + known[1] * HOPE * (rows - below)
