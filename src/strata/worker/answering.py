"""What answers requests, whether in this process or in another: the one thing a model of the library needs."""

import threading
import time
import weakref
from collections import deque
from typing import Protocol

import msgspec

from strata.worker import messages as m
from strata.worker.engine import Answer, Engine
from strata.worker.errors import EngineError, Kind, raised
from strata.worker.mailbox import Mailbox
from strata.worker.requests import unused


class Answering(Protocol):
    """One request under way."""

    def take(self, seconds: float | None = None) -> m.Event | None:
        """The next event; None if there is none yet, or none any more.

        Raises:
            StrataError: the request failed.
        """
        ...

    def cancel(self) -> None:
        """End the request; the last event says so."""
        ...

    def close(self) -> None:
        """End the request if it has not ended, and read no further."""
        ...


class Source(Protocol):
    """Takes requests."""

    def wait_ready(self, seconds: float | None = None) -> m.Ready:
        """What it is and takes."""
        ...

    def submit(self, request: m.Submit) -> Answering:
        """Take a request.

        Raises:
            StrataError: it cannot be taken.
        """
        ...

    def trace(self) -> bytes:
        """The last windows, as Chrome/Perfetto JSON text."""
        ...

    def resize(self, vram: int) -> m.Resized:
        """Take at most so many bytes of the GPU's memory from now on.

        Raises:
            StrataError: that cannot be; nothing has changed.
        """
        ...

    def close(self) -> None:
        """Put everything away."""
        ...


class InProcess:
    """An engine in this process.

    Whoever waits for an event does the work, for all requests under way; no thread runs behind it, and nothing happens
    while nobody waits.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.RLock()
        self._boxes: dict[str, Mailbox] = {}  # by the engine's names, see `Requests.sent`
        self._ending: set[str] = set()  # that nobody reads any more
        self._ids: dict[str, str] = {}  # of those whose name is another
        self._unwanted: deque[str] = deque()
        self._end = weakref.finalize(self, engine.close)  # at exit too: what is being saved is completed

    def wait_ready(self, seconds: float | None = None) -> m.Ready:  # noqa: ARG002  # it always is
        """What it is and takes."""
        return self.engine.ready

    def submit(self, request: m.Submit) -> "_Local":
        """Take a request.

        Raises:
            StrataError: it cannot be taken.
        """
        with self._lock:
            if not self._end.alive:
                raise EngineError(Kind.SHUTDOWN, "this model was closed")
            self._forget()
            name = unused(request.id, self._ending)
            self.engine.submit(msgspec.structs.replace(request, id=name))
            box = self._boxes[name] = Mailbox()
            if name != request.id:
                self._ids[name] = request.id
        return _Local(self, name, box)

    def trace(self) -> bytes:
        """The last windows, as Chrome/Perfetto JSON text."""
        with self._lock:
            return self.engine.trace(None)

    def resize(self, vram: int) -> m.Resized:
        """Take at most so many bytes of the GPU's memory from now on; between two units of work.

        Raises:
            StrataError: that cannot be; nothing has changed.
        """
        with self._lock:
            return self.engine.resize(vram)

    def close(self) -> None:
        """Complete what is being saved; answers under way end with an error."""
        with self._lock:
            for box in self._boxes.values():
                box.fail(EngineError(Kind.SHUTDOWN, "this model was closed"))
            self._boxes.clear()
            self._end()

    def work(self, box: Mailbox) -> m.Event | None:
        """One unit of work, unless there is something in the box already."""
        with self._lock:
            if (event := box.take(0)) is not None or box.over:
                return event
            self._forget()
            if not self.engine.idle and (pause := self.engine.wait()) > 0:
                time.sleep(pause)
            for answer in self.engine.tick():
                self._hand_over(answer)
            return box.take(0)

    def cancel(self, name: str) -> None:
        """End a request at the next unit of work."""
        with self._lock:
            self.engine.cancel(name)

    def drop(self, name: str) -> None:
        """End a request that nobody waits for any more, before the next unit of work; may be called anywhere."""
        self._unwanted.append(name)

    def _hand_over(self, answer: Answer) -> None:
        name, box = answer.id, self._boxes.get(answer.id)
        if box is None:
            if isinstance(answer, m.Finished | m.Failed):
                self._ending.discard(name)
            return
        if isinstance(answer, m.Failed):
            box.fail(raised(answer.kind, answer.message, answer.error, answer.numbers))
        else:
            box.put(msgspec.structs.replace(answer, id=self._ids[name]) if name in self._ids else answer)
        if box.over:
            del self._boxes[name]
            self._ids.pop(name, None)

    def _forget(self) -> None:
        while self._unwanted:
            name = self._unwanted.popleft()
            if self._boxes.pop(name, None) is not None:
                self._ids.pop(name, None)
                self._ending.add(name)
                self.engine.cancel(name)


class _Local:
    """One request to an engine in this process."""

    def __init__(self, source: InProcess, name: str, box: Mailbox) -> None:
        self._source = source
        self._name = name
        self._box = box
        self._end = weakref.finalize(self, source.drop, name)  # an answer that is forgotten unread
        self._end.atexit = False

    def take(self, seconds: float | None = None) -> m.Event | None:
        """The next event; with a time limit None after one unit of work that brought none."""
        while True:
            event = self._box.take(0) if self._box.unread else self._source.work(self._box)
            if event is not None or seconds is not None or self._box.over:
                return event

    def cancel(self) -> None:
        """End the request; the last event says so."""
        self._source.cancel(self._name)

    def close(self) -> None:
        """End the request if it has not ended."""
        self._end()
