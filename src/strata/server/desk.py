"""What all routes share: options, the model, numbers, and the requests under way."""

import asyncio
import logging
import time

from starlette.requests import Request
from starlette.responses import Response

from strata.server import replying
from strata.server.ask import Ask
from strata.server.dialects.responses.store import Store
from strata.server.errors import ApiError
from strata.server.metrics import Metrics
from strata.server.monitor import Monitor
from strata.server.options import Options
from strata.server.rendering import turns
from strata.server.run import Run
from strata.server.served import Served
from strata.server.writing import Writer

_log = logging.getLogger("strata.server")


class Desk:
    """The server's state; used in one event loop.

    Attributes:
        options: how it is set up.
        served: the model.
        metrics: numbers.
        monitor: the same for the page, and requests one by one.
        responses: those that are kept.
        ending: whether the server is about to end.
    """

    def __init__(self, served: Served, options: Options) -> None:
        self.served = served
        self.options = options
        self.metrics = Metrics(lambda: served.status, lambda: served.client.stats, served.name)
        self.responses = Store(options.responses)
        self.ending = False
        self._runs: set[Run] = set()
        self.monitor = Monitor(lambda: (self.served,), lambda: self._runs, lambda: self.ending)

    async def answer(self, request: Request, ask: Ask, writer: Writer) -> Response:
        """Answer a request in the writer's dialect.

        Raises:
            ApiError: it was refused or failed before an answer began.
        """
        if self.ending:
            raise ApiError(503, "the server is ending", code="shutdown", retry=5)
        served = self.served
        served.demand()
        prepared = await asyncio.to_thread(turns, served, ask, self.options)
        run = Run(served, ask, prepared)
        run.path = request.scope["path"]
        run.name = request.scope.get("state", {}).get("request", "")
        self._runs.add(run)
        if ask.stream:
            return await replying.stream(run, writer, self.options.sign, self._ended)
        return await replying.whole(run, writer, request.receive, self._ended)

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
