"""How fast tokens come, over the last seconds of work. Pure: no clock of its own."""

from collections import deque

SPAN = 2.0
"""Seconds that are looked back; what ended before is forgotten."""


class Speed:
    """Tokens and the time they took, since the start and over the last seconds.

    A rate is tokens by the time in which somebody worked on them, never by time that has passed since some beginning,
    so it is as true of the first window as of the hundredth.

    Attributes:
        tokens: all so far.
        seconds: the time they took.
    """

    def __init__(self, span: float = SPAN) -> None:
        """Look back so many seconds."""
        self.tokens = 0
        self.seconds = 0.0
        self._span = span
        self._last: deque[tuple[float, float, int]] = deque()

    def add(self, now: float, seconds: float, tokens: int) -> None:
        """Work of so many seconds that ends now has made so many tokens."""
        seconds = max(0.0, seconds)
        self.tokens += tokens
        self.seconds += seconds
        self._last.append((now, seconds, tokens))
        self._forget(now)

    def rate(self, now: float) -> float:
        """Tokens a second of the work that ended within the span; 0 where none did."""
        self._forget(now)
        seconds = sum(seconds for _, seconds, _ in self._last)
        return sum(tokens for *_, tokens in self._last) / seconds if seconds > 0 else 0.0

    def _forget(self, now: float) -> None:
        while self._last and self._last[0][0] < now - self._span:
            self._last.popleft()
