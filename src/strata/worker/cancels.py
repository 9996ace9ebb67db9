"""What an engine still did for requests that were ended from outside."""

from collections import deque
from dataclasses import dataclass, field

from strata.worker import messages as m

MOST = 3
"""Counts of units up to this one have a place of their own; the last place is for more as well."""

KEPT = 64
"""Units of a request that are remembered while it is open."""


@dataclass(frozen=True, slots=True)
class Cancels:
    """Requests that an engine was told to end.

    Attributes:
        count: those that are over.
        open: those of which the engine has not said the last word.
        units: of those that are over, how many had 0, 1, 2, and 3 or more units of work, passes or windows, that ended
            after the order had come to the engine's process. The one under way is one of them, so no more than 1 is
            what to expect.
        slowest: most seconds until an order had come there.
        longest: most seconds from the order to the last word.
    """

    count: int = 0
    open: int = 0
    units: tuple[int, ...] = (0,) * (MOST + 1)
    slowest: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class _One:
    since: float
    units: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))  # ends of units, without repetitions


class Leaving:
    """Counts them. The supervisor's lock guards it.

    The engine says when it chose a token or had read a part of a prompt, by the clock of this process, so what was on
    its way when the order was given does not count.
    """

    def __init__(self) -> None:
        self._open: dict[str, _One] = {}
        self._units = [0] * (MOST + 1)
        self._slowest = self._longest = 0.0

    @property
    def counts(self) -> Cancels:
        """As they are now."""
        return Cancels(sum(self._units), len(self._open), tuple(self._units), self._slowest, self._longest)

    def told(self, name: str, now: float) -> None:
        """The engine is told at monotonic time `now` to end the request it knows by this name."""
        self._open.setdefault(name, _One(now))

    def heard(self, report: m.Progress | m.Tokens | m.Finished | m.Failed, now: float) -> None:
        """The engine speaks of a request."""
        one = self._open.get(report.id)
        if one is None:
            return
        if isinstance(report, m.Finished | m.Failed):
            del self._open[report.id]
            told = report.told if isinstance(report, m.Finished) and report.told is not None else one.since
            self._units[min(sum(when > told for when in one.units), MOST)] += 1
            self._slowest = max(self._slowest, told - one.since)
            self._longest = max(self._longest, now - one.since)
        elif report.when not in one.units:  # a pass that chooses a token says both at once
            one.units.append(report.when)

    def died(self) -> None:
        """The engine is gone, and its work with it."""
        self._open.clear()
