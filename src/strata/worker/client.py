"""An engine in a process of its own, as the rest of the program sees it."""

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from strata.errors import StrataError
from strata.worker import messages as m
from strata.worker.care import Care
from strata.worker.errors import EngineError, Kind
from strata.worker.mailbox import Mailbox
from strata.worker.status import Status
from strata.worker.supervisor import GRACE, Supervisor

if TYPE_CHECKING:
    from concurrent.futures import Future

_numbers = itertools.count(1)


class Answer(Iterator[m.Event]):
    """The events of one request as they come: `Progress`, `Tokens`, and one `Finished` at the end.

    Leaving it early (`close`, or the end of a `with` block) cancels the request; so does forgetting it.

    Raises (from iterating):
        RequestError: the engine cannot answer this: a value out of range, a prompt that does not fit.
        QueueFullError: too many requests wait already.
        EngineError: the engine died, hung or ran out of memory; `kind` says which.
    """

    def __init__(self, client: "Client", supervisor: Supervisor, request: str, mailbox: Mailbox) -> None:
        self.id = request
        self._client = client  # which would close the engine if it were forgotten
        self._supervisor = supervisor
        self._mailbox = mailbox
        self._done = False
        self._end = weakref.finalize(self, supervisor.cancel, request, drop=True)
        self._end.atexit = False

    def __next__(self) -> m.Event:
        event = self.take()
        if event is None:
            raise StopIteration
        return event

    def take(self, seconds: float | None = None) -> m.Event | None:
        """The next event, after waiting for it for at most so long; None if there is none yet, or none any more.

        Raises:
            StrataError: as iterating does.
        """
        if self._done:
            return None
        try:
            event = self._mailbox.take(seconds)
        except StrataError:
            if not self._end.alive:
                return None  # another thread has closed it
            self._over()
            raise
        if isinstance(event, m.Finished) or (event is None and self._mailbox.over):
            self._over()
        return event

    def cancel(self) -> None:
        """End the request; the events still come, the last with the reason "cancelled". From any thread."""
        self._supervisor.cancel(self.id, drop=False)

    def close(self) -> None:
        """End the request and read no further. From any thread."""
        self._done = True
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _over(self) -> None:
        self._done = True
        self._end.detach()


class Client:
    """Starts an engine's process, keeps it alive, and hands requests to it.

    Safe to use from many threads and from an event loop: no method waits for the engine unless it says so. Use it in a
    `with` block, or `close` it.
    """

    def __init__(self, engine: m.ModelEngine | m.ScriptedEngine | m.CustomEngine, care: Care | None = None) -> None:
        """Start the engine; `wait_ready` waits for it, requests may be submitted at once.

        Args:
            engine: what to run.
            care: how to look after it.
        """
        self._supervisor = Supervisor(engine, care or Care())
        self._supervisor.start()
        self._end = weakref.finalize(self, self._supervisor.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def status(self) -> Status:
        """How the engine is, without asking it."""
        return self._supervisor.status

    @property
    def ready(self) -> m.Ready | None:
        """What the engine said of itself when it was ready last, without asking it; None if it never was."""
        return self._supervisor.ready

    @property
    def stats(self) -> dict[str, Any]:
        """The engine's counters as of its last sign of life (four a second); empty before the first."""
        return self._supervisor.stats

    def wait_ready(self, seconds: float | None = None, on_load: Callable[[int, int], None] | None = None) -> m.Ready:
        """Wait until the engine is ready, waking it if it sleeps.

        Args:
            seconds: most to wait; None without limit.
            on_load: called with (bytes loaded, bytes to load) meanwhile.

        Returns:
            What the engine is and takes.

        Raises:
            StrataError: it cannot be started; the class is the one of the error that the engine met, such as GgufError.
            EngineError: it was not ready in time, died too often, or the client was closed.
        """
        return self._supervisor.wait_ready(seconds, on_load)

    def submit(self, request: m.Submit) -> Answer:
        """Ask for an answer. Does not wait: while there is no engine the request does.

        Raises:
            RequestError: the id is in use.
            QueueFullError: too many requests wait for an engine.
            StrataError: there is no engine and will be none.
        """
        request = _named(request)
        return Answer(self, self._supervisor, request.id, self._supervisor.submit(request))

    async def stream(self, request: m.Submit) -> AsyncIterator[m.Event]:
        """`submit` for an event loop: the same events and errors.

        Closing the generator cancels the request, and so does cancelling the task that reads it.
        """
        loop = asyncio.get_running_loop()
        fresh = asyncio.Event()

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(fresh.set)
            except RuntimeError:  # the loop is closed: nobody reads
                self._supervisor.cancel(request.id, drop=True)

        request = _named(request)
        mailbox = self._supervisor.submit(request)
        mailbox.on_change(notify)
        ended = False
        try:
            while not ended:
                await fresh.wait()
                fresh.clear()
                while (event := mailbox.take(0)) is not None:
                    ended = isinstance(event, m.Finished)
                    yield event
        finally:
            self._supervisor.cancel(request.id, drop=True)

    def ask_stats(self) -> "Future[m.Stats]":
        """The engine's counters as they are now; for an event loop there is `asyncio.wrap_future`."""
        return self._supervisor.ask(m.AskStats)

    def ask_trace(self, windows: int | None = None) -> "Future[m.Trace]":
        """So many of the last windows, or all that are known, as Chrome/Perfetto JSON text."""
        return self._supervisor.ask(m.AskTrace, windows=windows)

    def ask_resize(self, vram: int) -> "Future[m.Resized]":
        """Take at most so many bytes of the GPU's memory from now on; done between two units of work.

        The future raises RequestError if no such size makes sense for the model, and RoomError if it would grow and
        the memory is not there; then nothing has changed. An engine that is started later takes as much.
        """
        return self._supervisor.ask(m.Resize, vram=vram)

    def resize(self, vram: int, seconds: float = 120.0) -> m.Resized:
        """`ask_resize`, waited for.

        Raises:
            EngineError: there is no engine, or it did not answer in time; it may do it yet.
            StrataError: as `ask_resize` says.
        """
        try:
            return self.ask_resize(vram).result(seconds)
        except TimeoutError:
            raise EngineError(Kind.ENGINE_HUNG, f"the engine did not answer within {seconds:g} s") from None

    def trace(self, seconds: float = 10.0) -> bytes:
        """`ask_trace`, waited for.

        Raises:
            EngineError: there is no engine, or it did not answer in time.
        """
        try:
            return self.ask_trace().result(seconds).json
        except TimeoutError:
            raise EngineError(Kind.ENGINE_HUNG, f"the engine did not answer within {seconds:g} s") from None

    def ping(self) -> "Future[m.Pong]":
        """A round trip through the engine's work loop."""
        return self._supervisor.ask(m.Ping)

    def wake(self) -> None:
        """Start an engine that sleeps or was given up; does not wait for it."""
        self._supervisor.wake()

    def sleep(self) -> bool:
        """Unload an engine that has nothing to do, until the next request or `wake`; its process ends.

        Does not wait. Returns whether it goes: one that has a request stays. What it keeps is saved, if it has a
        folder for it.
        """
        return self._supervisor.sleep()

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call this, from whatever thread, each time `status` may have another state; it must not wait for anything."""
        self._supervisor.on_change(notify)

    def restart(self) -> None:
        """Try again after the engine was given up, or replace a running one; requests it has begun fail."""
        self._supervisor.restart()

    def close(self, seconds: float = GRACE) -> None:
        """End the engine, and wait for that.

        Requests under way fail with the kind shutdown. What the engine is saving is completed, within `seconds`.
        """
        self._end.detach()
        self._supervisor.close(seconds)


def _named(request: m.Submit) -> m.Submit:
    return request if request.id else msgspec.structs.replace(request, id=f"request-{next(_numbers)}")


__all__ = ["Answer", "Care", "Client", "EngineError", "Kind"]
