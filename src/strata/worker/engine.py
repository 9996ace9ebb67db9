"""What an engine is to the process it lives in."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from strata.errors import QueueFullError, StrataError
from strata.worker.errors import Kind
from strata.worker.messages import Failed, Finished, Holdings, Progress, Ready, Resized, Submit, Tokens

OnLoad = Callable[[int, int], None]

Answer = Progress | Tokens | Finished | Failed
"""What an engine says of one request."""


def refused(request: str, error: BaseException) -> Failed:
    """What is said of a request that could not be taken."""
    if isinstance(error, QueueFullError):
        numbers = {"running": error.running, "waiting": error.waiting, "bound": error.bound}
        return Failed(request, Kind.QUEUE_FULL, str(error), numbers=numbers)
    if isinstance(error, StrataError):
        return Failed(request, Kind.BAD_REQUEST, str(error), type(error).__name__)
    return Failed(request, Kind.FAILED, f"unexpected {type(error).__name__}: {error}")


class Engine(Protocol):
    """Requests in, messages out, one unit of work at a time. Used by one thread only."""

    @property
    def ready(self) -> Ready:
        """What it is and takes."""
        ...

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        ...

    def wait(self) -> float:
        """Seconds until the next tick has something to do; 0 for at once. Only asked while not idle."""
        ...

    def submit(self, request: Submit) -> None:
        """Take a request.

        Raises:
            QueueFullError: too many wait already.
            StrataError: it cannot be answered, as it is or ever.
        """
        ...

    def cancel(self, request: str) -> None:
        """End a request before the next unit of work; unknown ids are ignored."""
        ...

    def tick(self) -> Sequence[Answer]:
        """Do one unit of work: a pass over a part of a prompt, or one window."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counters by name; cheap."""
        ...

    def holdings(self) -> Holdings:
        """What it holds; need not be cheap."""
        ...

    def trace(self, windows: int | None = None) -> bytes:
        """So many of the last windows, or all that are known, as Chrome/Perfetto JSON text."""
        ...

    def resize(self, vram: int, nonce: int = 0) -> Resized:
        """Take at most so many bytes of the GPU's memory from now on; between two units of work.

        Args:
            vram: bytes.
            nonce: to answer with.

        Raises:
            StrataError: that cannot be; nothing has changed.
        """
        ...

    def close(self) -> None:
        """Complete what is being saved, forget the rest."""
        ...
