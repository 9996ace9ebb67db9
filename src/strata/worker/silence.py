"""How long a process has been silent, by a clock that stands still while nobody listens."""

import time

LONGEST = 1.0
"""Seconds that one tick counts at most: if this process was itself stopped (a suspended laptop, SIGSTOP), the silence
was ours."""


STALL = 5.0
"""Seconds of silence of an engine that works which are worth counting."""


class Stalls:
    """How often an engine kept silent for long, and how long at most; one silence after the other.

    Attributes:
        count: silences of at least `STALL` seconds.
        longest: seconds of the longest of all.
    """

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0

    def ended(self, seconds: float) -> None:
        """A silence of so many seconds is over."""
        self.longest = max(self.longest, seconds)
        self.count += seconds >= STALL


class Silence:
    """Counts seconds since `heard`, in ticks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = time.monotonic()

    def heard(self) -> None:
        """A sign of life."""
        self.seconds = 0.0

    def tick(self, now: float) -> float:
        """Count the time since the last tick; returns the silence so far."""
        self.seconds += min(LONGEST, now - self._last)
        self._last = now
        return self.seconds
