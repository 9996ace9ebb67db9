"""Rounds of one measurement: how many, and what they come to."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strata.errors import StrataError


class StoppedError(StrataError):
    """Somebody asked to stop; what was measured before is good."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The median of some rounds and how far they lay apart."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """Of one value a round."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def times(self, factor: float) -> "Sample":
        """In another unit."""
        return Sample(self.median * factor, self.least * factor, self.most * factor, self.rounds)

    def rate(self, amount: float) -> "Sample":
        """An amount a second, where these are seconds."""
        return Sample(amount / self.median, amount / self.most, amount / self.least, self.rounds)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Pace:
    """How patiently to measure.

    Attributes:
        rounds: values of each measurement.
        seconds: that one round should take about, where its amount of work is a matter of choice.
        clock: seconds that only grow.
        stop: asked between rounds; True ends everything with `StoppedError`.
    """

    rounds: int = 7
    seconds: float = 0.25
    clock: Callable[[], float] = time.perf_counter
    stop: Callable[[], bool] = _never

    def taken(self, work: Callable[[], float], *, before: int = 1) -> Sample:
        """Of work that says itself how many seconds it took.

        Args:
            work: what to do.
            before: times that do not count: whatever compiles, wakes, or is touched for the first time.

        Raises:
            StoppedError: somebody asked to stop.
        """
        values = []
        for turn in range(-before, self.rounds):
            self.check()
            value = work()
            if turn >= 0:
                values.append(max(value, 1e-9))  # a clock has steps
        return Sample.of(values)

    def timed(self, work: Callable[[], object], *, before: int = 1) -> Sample:
        """Seconds of some work."""

        def once() -> float:
            began = self.clock()
            work()
            return self.clock() - began

        return self.taken(once, before=before)

    def amount(self, seconds: float, unit: int, *, most: int, least: int = 1) -> int:
        """Units of work for a round, where so many took so many seconds."""
        return max(least, min(most, int(unit * self.seconds / max(seconds, 1e-6))))

    def check(self) -> None:
        """Raises StoppedError if somebody asked to stop."""
        if self.stop():
            raise StoppedError("stopped")
