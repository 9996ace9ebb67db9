"""Snapshots of one server, made when somebody asks."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

import strata
from strata.server import sse
from strata.server.monitor import machine, requests
from strata.server.monitor.engines import Look
from strata.server.monitor.listeners import Listeners
from strata.server.monitor.snapshot import Done, Server, Snapshot
from strata.server.run import Run
from strata.server.served import Served

RECENT = 50
"""Requests that are remembered after their end."""

PATIENCE = 0.1
"""Seconds that a look waits for what an engine holds."""


class Monitor:
    """Knows what is asked of it and nothing else; used in one event loop.

    Attributes:
        listeners: to events.
    """

    def __init__(
        self,
        engines: Callable[[], Iterable[Served]],
        runs: Callable[[], Iterable[Run]],
        ending: Callable[[], bool],
    ) -> None:
        """Watch a server.

        Args:
            engines: those it has now.
            runs: requests under way.
            ending: whether the server takes no new ones.
        """
        self._engines = engines
        self._runs = runs
        self._ending = ending
        self._began = time.monotonic()
        self._number = 0
        self._looks: dict[int, Look] = {}
        self._processes = machine.Processes()
        self._recent: deque[Done] = deque(maxlen=RECENT)
        self.listeners = Listeners(self._event)

    def ended(self, run: Run, seconds: float) -> None:
        """A request is over."""
        self._recent.appendleft(requests.done(run, seconds))

    def end(self) -> None:
        """The server ends, and events with it."""
        self.listeners.end()

    async def snapshot(self) -> Snapshot:
        """One look; no engine is waited for longer than a moment."""
        served = list(self._engines())
        self._looks = {id(one): self._looks.get(id(one)) or Look(one) for one in served}
        looks = list(self._looks.values())
        await asyncio.gather(*(look.ask(PATIENCE) for look in looks))
        now = time.monotonic()
        self._number += 1
        runs = sorted(self._runs(), key=lambda run: run.began)
        return Snapshot(
            number=self._number,
            time=time.time(),
            server=Server(
                version=strata.__version__,
                uptime=now - self._began,
                ending=self._ending(),
                listeners=len(self.listeners),
            ),
            ram=machine.memory(),
            processes=self._processes.look((one.name, one.status.pid) for one in served),
            engines=tuple(look.engine() for look in looks),
            requests=tuple(requests.underway(run, now) for run in runs),
            recent=tuple(self._recent),
        )

    async def _event(self) -> bytes:
        return sse.data(await self.snapshot())
