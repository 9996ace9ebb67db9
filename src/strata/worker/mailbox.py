"""Where the events of one request wait for whoever reads them."""

import threading
from collections import deque
from collections.abc import Callable

from strata.errors import StrataError
from strata.worker.messages import Event, Finished, Progress, Tokens


class Mailbox:
    """One writer, one reader; neither waits for the other.

    Events of the same kind are put together while they wait: of progress only the newest is kept, and tokens become
    one message. So what waits is bounded by its tokens, which `unread` counts.

    Attributes:
        unread: tokens that wait.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._pieces: list[Tokens] = []  # the newest tokens, not put together yet
        self._error: StrataError | None = None
        self._over = False
        self._changed = threading.Condition()
        self._notify: Callable[[], None] | None = None
        self.unread = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will be put in."""
        return self._over

    def put(self, event: Event) -> None:
        """Add an event; `Finished` is the last, and after the last all are ignored."""
        with self._changed:
            if self._over:
                return
            if isinstance(event, Tokens):
                self._pieces.append(event)
                self.unread += len(event.tokens)
            else:
                self._settle()
                if isinstance(event, Progress) and self._events and isinstance(self._events[-1], Progress):
                    self._events.pop()
                self._events.append(event)
            self._over = isinstance(event, Finished)
            self._tell()

    def fail(self, error: StrataError) -> None:
        """End with an error, behind what waits already."""
        with self._changed:
            if not self._over:
                self._error, self._over = error, True
                self._tell()

    def take(self, seconds: float | None = None) -> Event | None:
        """The next event, after waiting for it for at most so long; None if there is none.

        Raises:
            StrataError: the error it ended with, each time.
        """
        with self._changed:
            if not self._some():
                self._changed.wait_for(self._some, seconds)
            self._settle()
            if self._events:
                event = self._events.popleft()
                if isinstance(event, Tokens):
                    self.unread -= len(event.tokens)
                return event
            if self._error is not None:
                raise self._error
            return None

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call this, from whatever thread, each time there is something new; and now if there is already."""
        with self._changed:
            self._notify = notify
            if self._some():
                notify()

    def _some(self) -> bool:
        return bool(self._events or self._pieces or self._over)

    def _settle(self) -> None:
        if self._pieces:
            if self._events and isinstance(before := self._events[-1], Tokens):
                self._pieces.insert(0, before)
                self._events.pop()
            joined = tuple(piece for message in self._pieces for piece in message.tokens)
            self._events.append(Tokens(self._pieces[0].id, joined, self._pieces[-1].when))
            self._pieces.clear()

    def _tell(self) -> None:
        self._changed.notify_all()
        if self._notify is not None:
            self._notify()
