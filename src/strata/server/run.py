"""The answers to one request while they come."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from strata.api.reply import Event, Finished
from strata.server.ask import Ask
from strata.server.errors import ApiError, of
from strata.server.rendering import Turn
from strata.server.served import Served
from strata.server.turn import Answering
from strata.worker import Progress

_WAITING = 64
"""Reports that may wait here; more wait in the mailbox of the engine's client, which bounds them."""

Prepare = Callable[["Run"], Awaitable[Sequence[Turn]]]
"""Says what is to be computed for a request, once its model is there; may set the run's `waiting` and `leave`."""

News = tuple[Answering, list[Event]]
"""An answer, and what is new in it; no events are news of the prompt."""


class Run:
    """One request: its answers side by side, in one order of events. Leaving it cancels what is under way.

    Attributes:
        ask: what was asked.
        served: the model.
        answers: by index; empty until the request is prepared.
        waiting: whether it waits for its model.
        begun: whether the client has been told that there will be an answer.
        leave: called when it is over: its model may go.
        outcome: how it ended, for log and metrics: a reason, or "error", or "disconnect" while it runs.
        path: the route it came by.
        name: of the request, as its answer's headers say it.
        began: monotonic seconds.
    """

    def __init__(self, served: Served, ask: Ask, prepare: Prepare) -> None:
        self.served = served
        self.ask = ask
        self.answers: list[Answering] = []
        self.waiting = self.begun = False
        self.leave: Callable[[], None] = lambda: None
        self.began = time.monotonic()
        self.outcome = "disconnect"
        self.error: ApiError | None = None
        self.path = self.name = ""
        self._news: asyncio.Queue[News | BaseException] = asyncio.Queue(_WAITING)
        self._abort: ApiError | None = None
        self._prepare = prepare
        self._settled = asyncio.Event()  # prepared, or failed before
        self._broken: BaseException | None = None
        self._open = 1
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._begin())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.leave()

    @property
    def over(self) -> bool:
        """Whether all answers have ended and all their news has been taken."""
        return self._open == 0

    def abort(self, error: ApiError) -> None:
        """End it with an error, whatever waits."""
        self._abort = error
        self._settled.set()
        if self._news.empty():  # somebody may be waiting for news
            self._news.put_nowait(error)

    async def prepared(self, seconds: float | None = None) -> bool:
        """Wait until it is prepared, but no longer than that; returns whether it is.

        Raises:
            Exception: the request failed.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            return False
        if self._abort is not None:
            raise self._failed(self._abort)
        if self._broken is not None:
            self._failed(of(self._broken))
            raise self._broken  # itself: a bug's place is in it
        return True

    async def next(self, seconds: float) -> News | None:
        """What comes next once it is prepared; None if nothing does within so many seconds.

        Raises:
            ApiError: the request failed.
        """
        if self._abort is not None:
            raise self._failed(self._abort)
        try:
            news = self._news.get_nowait()
        except asyncio.QueueEmpty:
            try:
                async with asyncio.timeout(seconds):
                    news = await self._news.get()
            except TimeoutError:
                return None
        if self._abort is not None:
            raise self._failed(self._abort)
        if isinstance(news, BaseException):
            raise self._failed(of(news)) from news
        if news[0].over and news[1] and isinstance(news[1][-1], Finished):
            self._open -= 1
        if self.over:
            self.outcome = next((a.reason for a in self.answers if a.reason != "stop"), None) or "stop"
        return news

    def _failed(self, error: ApiError) -> ApiError:
        self.outcome, self.error = "error", error
        return error

    async def _begin(self) -> None:
        """Have it prepared, then follow all answers."""
        try:
            turns = await self._prepare(self)
            tokenizer = self.served.tokenizer
            self.answers = [Answering(turn, index, self.ask, tokenizer) for index, turn in enumerate(turns)]
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # whoever waits is told
            self._broken = error
        else:
            self._open = len(self.answers)
            self._tasks += [asyncio.create_task(self._follow(answer)) for answer in self.answers]
        self._settled.set()

    async def _follow(self, answer: Answering) -> None:
        """One answer into the queue, up to its end."""
        try:
            async with contextlib.aclosing(self.served.client.stream(answer.turn.submit)) as reports:  # type: ignore[type-var]
                async for report in reports:
                    events = answer.take(report)
                    if events or isinstance(report, Progress):
                        await self._news.put((answer, events))
                    if answer.over:
                        return
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # whoever reads the news is told
            await self._news.put(error)
