"""The models behind one address, and the way of a request to its model."""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from strata.errors import QueueFullError, StrataError
from strata.server.errors import ApiError
from strata.server.fleet.line import Admit, Line, Load, Phase, Spec, Ticket, Unload
from strata.server.served import Served
from strata.worker import State, Status

_log = logging.getLogger("strata.server")

PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds after a failed load in which nobody else is pushed out for the same model; doubles with each failure."""

_OVER = frozenset({State.ASLEEP, State.FAILED, State.CLOSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of a fleet.

    Attributes:
        served: the model.
        size: bytes that count against the fleet's room.
        idle: seconds without a request after which it is unloaded; None never.
        early: it is loaded when the server starts.
        fixed: it is always there: whatever its engine does, requests go to it.
    """

    served: Served
    size: int = 0
    idle: float | None = None
    early: bool = False
    fixed: bool = False

    @property
    def spec(self) -> Spec:
        """The same for the line."""
        return Spec(name=self.served.name, size=self.size, idle=self.idle, early=self.early, fixed=self.fixed)


@dataclass(slots=True)
class History:
    """What loading a model took so far.

    Attributes:
        began: when the load that is under way began, monotonic seconds.
        loads: how many there were.
        unloads: how many times it was told to go.
        failures: how many failed.
        seconds: of all loads.
        reason: why the last one failed; empty after one that did not.
        until: no other is pushed out for it before, monotonic seconds.
    """

    began: float = 0.0
    loads: int = 0
    unloads: int = 0
    failures: int = 0
    seconds: float = 0.0
    reason: str = ""
    until: float = -math.inf


class Fleet:
    """Models by name, each with an engine of its own. Used in one event loop, but for what only looks."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        most: int | None = None,
        room: int | None = None,
        turn: float = 10.0,
        wait: float = 300.0,
        waiting: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Put models together.

        Args:
            members: all models; the first is the one that is meant where a request names none.
            most: how many may be loaded at a time; None all.
            room: bytes that those may take together; None has no limit.
            turn: seconds that a model with work keeps its place, see `strata.server.fleet.line`.
            wait: seconds that a request may wait for its model.
            waiting: requests that may wait for one model.
            clock: seconds.
        """
        self._members = {member.served.name: member for member in members}
        self._line = Line([member.spec for member in members], most=most, room=room, turn=turn)
        self._wait, self._waiting, self._clock = wait, waiting, clock
        self._told: dict[Ticket, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.history = {name: History() for name in self._members}

    @classmethod
    def of(cls, served: Served) -> "Fleet":
        """One model that is always there."""
        return cls([Member(served=served, fixed=True)])

    # ---- who there is

    @property
    def all(self) -> tuple[Served, ...]:
        """The models."""
        return tuple(member.served for member in self._members.values())

    @property
    def first(self) -> Served:
        """The one that is meant where a request names none."""
        return self.all[0]

    @property
    def several(self) -> bool:
        """Whether there is a choice. One model answers whatever a request calls it."""
        return len(self._members) > 1

    def find(self, name: object) -> Served | None:
        """The model of this name or alias, whatever the case; None if there is none. No name means the first."""
        if not isinstance(name, str) or not name:
            return self.first
        wanted = name.lower()
        for served in self.all:
            if wanted in {served.name.lower(), *(alias.lower() for alias in served.aliases)}:
                return served
        for served in self.all:
            if any(fnmatchcase(wanted, alias.lower()) for alias in served.aliases):
                return served
        return None

    def state(self, served: Served) -> str:
        """What a model is doing: the state of its engine, `unloading` while that ends."""
        if self._line.phase(served.name) is Phase.ENDING or self._line.leaving(served.name):
            return "unloading"
        return str(served.status.state)

    def fixed(self, served: Served) -> bool:
        """Whether a model is always there: nobody waits here until it is loaded."""
        return self._members[served.name].fixed

    def waiting(self, served: Served) -> int:
        """Requests that wait until their model is there."""
        return self._line.waiting(served.name)

    def able(self, served: Served) -> bool:
        """Whether a request for it would be worked on, at once or after loading."""
        if served.awaited:
            return served.ready
        return self._line.phase(served.name) is Phase.READY or not self.history[served.name].reason

    # ---- a request's way

    async def enter(self, served: Served, on_wait: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """Wait until a model is there for a request; returns what has to be called when the request is over.

        Args:
            served: the model.
            on_wait: called if there is something to wait for.

        Raises:
            ApiError: it cannot be loaded, or not in time.
            QueueFullError: too many wait for it already.
        """
        ticket, told = self._join(served)
        if not told.done():
            on_wait()
        await self._admitted(served, ticket, told)
        return lambda: self._leave(ticket)

    async def load(self, served: Served, *, wait: bool) -> None:
        """Have a model loaded, as a request for it would, and let it be.

        Args:
            served: the model.
            wait: until it is there.

        Raises:
            ApiError: it cannot be loaded, or not in time.
            QueueFullError: too many wait for it already.
        """
        ticket, told = self._join(served)
        if wait:
            await self._admitted(served, ticket, told)

        def over(told: asyncio.Future[None]) -> None:
            if not told.cancelled():
                told.exception()  # which the model's history has, too
            self._leave(ticket)

        told.add_done_callback(over)

    async def unload(self, served: Served, *, wait: bool) -> None:
        """Have a model go as soon as its answers have ended; requests that come meanwhile load it again after that.

        Args:
            served: the model.
            wait: until it has gone.

        Raises:
            ApiError: it may not go, is being loaded, or has not gone in time.
        """
        name, begun = served.name, self._clock()
        if self._members[name].fixed:
            raise ApiError(409, f"the model {name!r} is always loaded as long as this server runs", code="fixed")
        if self._line.phase(name) is Phase.LOADING:
            text = f"the model {name!r} is being loaded; it can be unloaded when it is there"
            raise ApiError(409, text, code="loading", retry=5)
        if self._line.phase(name) is Phase.READY:
            self._line.release(name)
            self._do()
        while wait and (self._line.leaving(name) or self._line.phase(name) is Phase.ENDING):
            if self._clock() - begun > self._wait:
                text = f"the model {name!r} still has answers under way; it goes when they have ended"
                raise ApiError(503, text, code="busy", retry=5)
            await asyncio.sleep(0.02)

    def _join(self, served: Served) -> tuple[Ticket, "asyncio.Future[None]"]:
        """Get in line for a model.

        Raises:
            ApiError: it could not be loaded a moment ago, and others would have to go for another try.
            QueueFullError: too many wait for it already.
        """
        name, now = served.name, self._clock()
        there = self._line.phase(name) is Phase.READY
        failed = self.history[name]
        if failed.reason and now < failed.until and not self._line.fits(name):
            raise self._failure(name, math.ceil(failed.until - now))
        if not there and self._line.waiting(name) >= self._waiting:
            raise QueueFullError(running=0, waiting=self._line.waiting(name), bound=self._waiting)
        ticket = next(self._numbers)
        told = asyncio.get_running_loop().create_future()
        self._told[ticket] = told
        self._line.want(ticket, name, now)
        self._do()
        return ticket, told

    async def _admitted(self, served: Served, ticket: Ticket, told: "asyncio.Future[None]") -> None:
        """Wait for one's turn.

        Raises:
            ApiError: the model cannot be loaded, or not in time.
        """
        name = served.name
        try:
            async with asyncio.timeout(self._wait):
                await told
        except TimeoutError:
            self._leave(ticket)
            text = (
                f"the model {name!r} could not be loaded within {self._wait:g} s; others are in use or it takes longer"
            )
            raise ApiError(503, f"{text}; try again later", code="loading", retry=5) from None
        except BaseException:
            self._leave(ticket)
            raise

    # ---- its life

    def start(self) -> None:
        """Begin, in the event loop that is running: hear of the engines, and load what is to be loaded."""
        loop = self._loop = asyncio.get_running_loop()

        def heard() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._look)

        for member in self._members.values():
            if not member.fixed:
                member.served.client.on_change(heard)
        self._do()

    def stop(self) -> None:
        """Decide nothing any more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self, ticket: Ticket) -> None:
        self._told.pop(ticket, None)
        self._line.leave(ticket, self._clock())
        self._do()

    def _look(self) -> None:
        """An engine may be in another state."""
        for name, member in self._members.items():
            if not member.fixed:
                self._heard(name, member.served)
        self._do()

    def _heard(self, name: str, served: Served) -> None:
        phase, status, past = self._line.phase(name), served.status, self.history[name]
        over = status.state in _OVER and status.pid is None
        if phase is Phase.LOADING and status.ready:
            served.loaded()
            self._line.loaded(name, self._clock())
            past.loads, past.reason, past.until = past.loads + 1, "", -math.inf
            past.seconds += self._clock() - past.began
            where = f", {served.where}" if served.where else ""
            _log.info("%s: loaded in %.1f s%s", name, self._clock() - past.began, where)
        elif phase is Phase.LOADING and over:
            self._failed(name, status)
        elif phase is Phase.ENDING:
            if over:
                self._line.gone(name)
                _log.info("%s: unloaded", name)
            else:
                served.client.sleep()  # it was being started again when it was told to go
        elif phase is Phase.READY and over:
            past.reason = status.reason
            self._line.gone(name)

    def _failed(self, name: str, status: Status) -> None:
        past = self.history[name]
        past.failures, past.reason = past.failures + 1, status.reason or "its engine ended"
        lost = self._line.failed(name)
        pause = min(LONGEST_PAUSE, PAUSE * 2.0 ** (self._line.failures(name) - 1))
        past.until = self._clock() + pause
        _log.warning("%s: could not be loaded: %s", name, past.reason)
        for ticket in lost:
            told = self._told.get(ticket)
            if told is not None and not told.done():
                told.set_exception(self._failure(name, 1))

    def _failure(self, name: str, retry: int) -> ApiError:
        text = f"the model {name!r} could not be loaded: {self.history[name].reason}"
        return ApiError(503, text, code="not_ready", retry=retry)

    def _do(self) -> None:
        """Do what the line says is to be done, and come back when it is time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        for action in self._line.step(now):
            match action:
                case Load(model=name):
                    self.history[name].began = now
                    self._members[name].served.client.wake()
                    asyncio.get_running_loop().call_soon(self._look)  # it may be there already, and say nothing new
                case Unload(model=name):
                    self.history[name].unloads += 1
                    self._members[name].served.client.sleep()
                case Admit(ticket=ticket):
                    told = self._told.get(ticket)
                    if told is not None and not told.done():
                        told.set_result(None)
        if self._loop is not None and self._line.due < math.inf:
            self._timer = self._loop.call_later(max(0.0, self._line.due - now), self._do)


async def opened(served: Served) -> Served:
    """A model whose words are there.

    Raises:
        ApiError: its file cannot be used.
    """
    if not served.opened:
        try:
            await asyncio.to_thread(served.open)
        except StrataError as error:
            text = f"the model {served.name!r} could not be loaded: {error}"
            raise ApiError(503, text, code="not_ready", retry=5) from error
    return served
