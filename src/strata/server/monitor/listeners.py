"""Who listens to snapshots: made while somebody does, once for all of them, and skipped by who is slow."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from strata.server.errors import ApiError

_log = logging.getLogger("strata.server")

MOST = 16
"""Listeners at a time."""

PERIOD = 0.5
"""Seconds between two snapshots."""


class _Listener:
    """What one has not been given yet: the newest, if any."""

    def __init__(self) -> None:
        self.newest: bytes | None = None
        self.fresh = asyncio.Event()

    def give(self, event: bytes) -> None:
        self.newest = event
        self.fresh.set()


class Listeners:
    """All of them. Nothing happens while there are none."""

    def __init__(self, make: Callable[[], Awaitable[bytes]], *, period: float = PERIOD, most: int = MOST) -> None:
        """Nobody listens yet.

        Args:
            make: the next event for everybody.
            period: seconds between two.
            most: listeners at a time.
        """
        self._make = make
        self._period = period
        self._most = most
        self._all: set[_Listener] = set()
        self._making: asyncio.Task[None] | None = None
        self._newest: bytes | None = None  # for those who come between two
        self._ended = False

    def __len__(self) -> int:
        return len(self._all)

    def admit(self) -> None:
        """Say whether there is room for one more.

        Raises:
            ApiError: there is none, or there will be no more events.
        """
        if self._ended:
            raise ApiError(503, "the server is ending", code="shutdown", retry=5)
        if len(self._all) >= self._most:
            raise ApiError(
                503,
                f"{self._most} listen already, which is all that may; close one",
                code="too_many_listeners",
                retry=5,
            )

    async def listen(self) -> AsyncGenerator[bytes]:
        """Events until the server ends; whoever is slow gets the newest one only. None where there is no room."""
        if self._ended or len(self._all) >= self._most:
            return
        listener = _Listener()
        self._all.add(listener)
        if self._newest is not None:
            listener.give(self._newest)
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._work())
        try:
            while not self._ended:
                await listener.fresh.wait()
                listener.fresh.clear()
                if listener.newest is not None:
                    event, listener.newest = listener.newest, None
                    yield event
        finally:
            self._all.discard(listener)
            if not self._all and self._making is not None:
                self._making.cancel()
                self._making = self._newest = None

    def end(self) -> None:
        """No more events."""
        self._ended = True
        for listener in self._all:
            listener.fresh.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(asyncio.CancelledError):
            while self._all and not self._ended:
                began = loop.time()
                try:
                    self._newest = await self._make()
                except Exception:  # noqa: BLE001  # the next look may see more
                    _log.exception("a snapshot could not be made")
                else:
                    for listener in self._all:
                        listener.give(self._newest)
                await asyncio.sleep(max(0.0, began + self._period - loop.time()))
