"""What all routes share: options, the model, numbers, and the requests under way."""

import asyncio
import logging
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from strata.server import replying
from strata.server.ask import Ask
from strata.server.connection import Door
from strata.server.dialects.responses.store import Store
from strata.server.errors import ApiError, bad
from strata.server.fields import shown
from strata.server.fleet.fleet import Fleet, opened
from strata.server.metrics import Metrics
from strata.server.monitor import Monitor
from strata.server.options import Options
from strata.server.rendering import Turn, turns
from strata.server.run import Run
from strata.server.served import Served
from strata.server.writing import Writer

_log = logging.getLogger("strata.server")


class Desk:
    """The server's state; used in one event loop.

    Attributes:
        options: how it is set up.
        fleet: the models.
        door: the connections.
        metrics: numbers.
        monitor: the same for the page, and requests one by one.
        responses: those that are kept.
        ending: whether the server is about to end.
    """

    def __init__(self, served: Served | Fleet, options: Options) -> None:
        self.fleet = Fleet.of(served) if isinstance(served, Served) else served
        self.options = options
        self.door = Door(options.connections, options.unread)
        self.metrics = Metrics(self.fleet, self.door)
        self.responses = Store(options.responses)
        self.ending = False
        self._runs: set[Run] = set()
        self._rules = {served.name: options.of(served.said) for served in self.fleet.all}
        self.monitor = Monitor(lambda: self.fleet.all, lambda: self._runs, lambda: self.ending)

    @property
    def served(self) -> Served:
        """The model that is meant where none is named."""
        return self.fleet.first

    def rules(self, served: Served) -> Options:
        """The options as they hold for one model."""
        return self._rules[served.name]

    def demand(self, served: Served) -> None:
        """Refuse what needs a model that is not there yet, where nobody may wait for it.

        Raises:
            ApiError: it is being loaded, or cannot be.
        """
        if served.awaited and (self.fleet.fixed(served) or served.error is not None):
            served.demand()

    def named(self, request: Request, name: object) -> Served:
        """The model that a request names.

        Raises:
            ApiError: there is none of this name.
        """
        if name is not None and not isinstance(name, str):
            raise bad(f"model must be a text, not {shown(name)}", "model")
        served = self.fleet.find(name) if self.fleet.several else self.served
        if served is None:
            known = ", ".join(repr(one.name) for one in self.fleet.all)
            text = f"there is no model {str(name)[:100]!r} here; there are {known[:1000]}"
            raise ApiError(404, text, param="model", code="model_not_found")
        request.scope.setdefault("state", {})["model"] = served.name
        return served

    async def model(self, request: Request, name: object) -> Served:
        """The same, its words at hand.

        Raises:
            ApiError: there is none of this name, or its file cannot be used.
        """
        return await opened(self.named(request, name))

    async def answer(self, request: Request, served: Served, ask: Ask, writer: Writer) -> Response:
        """Answer a request in the writer's dialect.

        Raises:
            ApiError: it was refused or failed before an answer began.
        """
        if self.ending:
            raise ApiError(503, "the server is ending", code="shutdown", retry=5)
        self.demand(served)
        run = Run(served, ask, self._prepare)
        run.path = request.scope["path"]
        run.name = request.scope.get("state", {}).get("request", "")
        self._runs.add(run)
        if ask.stream:
            return await replying.stream(run, writer, self.options.sign, self._ended)
        return await replying.whole(run, writer, request.receive, self._ended)

    async def _prepare(self, run: Run) -> Sequence[Turn]:
        """What is to be computed; what can be checked before its model is there is checked before."""
        early = None
        if run.served.known is not None:
            early = await asyncio.to_thread(turns, run.served, run.ask, self.rules(run.served))

        def waits() -> None:
            run.waiting = True

        run.leave = await self.fleet.enter(run.served, waits)
        run.waiting = False
        return await asyncio.to_thread(turns, run.served, run.ask, self.rules(run.served)) if early is None else early

    def end(self) -> None:
        """The server ends: end what is under way, with an error in its own form."""
        for run in list(self._runs):
            run.abort(ApiError(503, "the server is ending, and this answer with it", code="shutdown", retry=5))
        self.monitor.end()

    @property
    def busy(self) -> bool:
        """Whether requests are under way."""
        return bool(self._runs)

    def _ended(self, run: Run) -> None:
        """Numbers and one line in the log, without a word of prompt or answer."""
        if run not in self._runs:
            return
        self._runs.discard(run)
        if not run.answers and run.error is not None and not run.begun:
            return  # it was refused, which has a line of its own
        seconds = time.monotonic() - run.began
        self.metrics.ended(run, seconds)
        self.monitor.ended(run, seconds)
        usages = [answer.usage for answer in run.answers]
        _log.info(
            "%s%s %s: %s%s, prompt %d (%d known), generated %d, %.2f s",
            run.name,
            f" by {run.ask.client!r}" if run.ask.client else "",
            run.path,
            run.outcome,
            f" ({run.error.status} {run.error.kind or run.error.code or ''})" if run.error else "",
            sum(usage.prompt for usage in usages),
            sum(usage.cached for usage in usages),
            sum(usage.generated for usage in usages),
            seconds,
        )
