"""What a dialect has to say about an answer."""

from typing import Any, Protocol

from strata.api.reply import Event
from strata.server.errors import ApiError
from strata.server.run import Run
from strata.server.turn import Answering


class Writer(Protocol):
    """Writes one request's answers in one dialect; made for each request."""

    def whole(self, run: Run) -> dict[str, Any]:
        """The answer in one piece, after all events went through `note`."""
        ...

    def note(self, answer: Answering, events: list[Event]) -> None:
        """Events of an answer that is given in one piece."""
        ...

    def begin(self, run: Run) -> bytes:
        """The stream's beginning."""
        ...

    def more(self, answer: Answering, events: list[Event]) -> bytes:
        """Events of an answer; without any, news of the prompt."""
        ...

    def sign(self, run: Run) -> bytes:
        """A sign of life; every reader may skip it."""
        ...

    def end(self, run: Run) -> bytes:
        """The stream's end, all answers being over."""
        ...

    def failed(self, run: Run, error: ApiError) -> bytes:
        """The stream's end where the request failed."""
        ...
