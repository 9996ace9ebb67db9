"""How an engine is looked after."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How an engine is looked after.

    Attributes:
        hang: seconds without a sign of life after which it counts as hung. Longer than the longest unit of work: one
            pass over a part of a prompt.
        loading_hang: the same while it loads.
        beat: seconds between signs of life.
        queue: requests that may wait here while there is no engine; a running one has a bound of its own.
        unread: tokens that may wait for the reader of one answer.
        idle: seconds without a request after which it is unloaded, until the next one; None never.
        asleep: begin without it; the first request loads it.
        saving: seconds that an engine which is unloaded may take to save its conversations.
        starts: useless starts in a row after which it is given up.
        pause: seconds before the second start of such a row; doubles up to 30.
    """

    hang: float = 120.0
    loading_hang: float = 600.0
    beat: float = 0.25
    queue: int = 64
    unread: int = 32768
    idle: float | None = None
    asleep: bool = False
    saving: float = 60.0
    starts: int = 5
    pause: float = 0.5

    @property
    def on_demand(self) -> bool:
        """Whether an engine that could not be started is tried again at the next request."""
        return self.idle is not None or self.asleep
