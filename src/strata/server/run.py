"""The answers to one request while they come."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
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

News = tuple[Answering, list[Event]]
"""An answer, and what is new in it; no events are news of the prompt."""


class Run:
    """One request: its answers side by side, in one order of events. Leaving it cancels what is under way.

    Attributes:
        ask: what was asked.
        served: the model.
        answers: by index.
        outcome: how it ended, for log and metrics: a reason, or "error", or "disconnect" while it runs.
        path: the route it came by.
        name: of the request, as its answer's headers say it.
        began: monotonic seconds.
    """

    def __init__(self, served: Served, ask: Ask, turns: Sequence[Turn]) -> None:
        self.served = served
        self.ask = ask
        self.answers = [Answering(turn, index, ask, served.tokenizer) for index, turn in enumerate(turns)]
        self.began = time.monotonic()
        self.outcome = "disconnect"
        self.error: ApiError | None = None
        self.path = self.name = ""
        self._news: asyncio.Queue[News | BaseException] = asyncio.Queue(_WAITING)
        self._abort: ApiError | None = None
        self._open = len(self.answers)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._follow(answer)) for answer in self.answers]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def over(self) -> bool:
        """Whether all answers have ended and all their news has been taken."""
        return self._open == 0

    def abort(self, error: ApiError) -> None:
        """End it with an error, whatever waits."""
        self._abort = error
        if self._news.empty():  # somebody may be waiting for news
            self._news.put_nowait(error)

    async def next(self, seconds: float) -> News | None:
        """What comes next; None if nothing does within so many seconds.

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
