"""How an engine is, told truly and without asking it."""

from dataclasses import dataclass, field
from enum import StrEnum

from strata.worker.cancels import Cancels


class State(StrEnum):
    """What an engine is doing, as seen from its client."""

    STARTING = "starting"  # its process has been started and has not spoken yet
    LOADING = "loading"
    READY = "ready"  # nothing to do
    BUSY = "busy"  # requests are under way
    RESTARTING = "restarting"  # it died; the next one is about to start
    ASLEEP = "asleep"  # unloaded for want of requests; the next one wakes it
    FAILED = "failed"  # it cannot be started, or died too often: `reason` says why
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """One look at an engine.

    Attributes:
        state: what it is doing.
        reason: why it failed or restarts; after a successful restart, why the last one ended.
        loaded: share of the loading that is done, 0 to 1.
        waiting: requests that wait for an engine or in its queue.
        running: requests that are being read or answered.
        restarts: starts after a death.
        pid: of the process; None without one.
        doing: the last sign of life's word.
        silent: seconds since the last sign of life; 0 without a process.
        stalls: silences of five seconds or more of engines that were loaded.
        longest: seconds of the longest silence of theirs.
        cancels: what became of requests that were ended from outside.
    """

    state: State
    reason: str = ""
    loaded: float = 0.0
    waiting: int = 0
    running: int = 0
    restarts: int = 0
    pid: int | None = None
    doing: str = ""
    silent: float = 0.0
    stalls: int = 0
    longest: float = 0.0
    cancels: Cancels = field(default_factory=Cancels)

    @property
    def ready(self) -> bool:
        """Whether a request would be worked on at once."""
        return self.state in {State.READY, State.BUSY}
