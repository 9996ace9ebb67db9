"""Keeps an engine alive: starts it, watches it, says truly how it is, and what becomes of requests when it dies."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from strata.errors import QueueFullError, RequestError, StrataError
from strata.worker import messages as m
from strata.worker.cancels import Leaving
from strata.worker.care import Care
from strata.worker.causes import Cause, explain, memory_kills
from strata.worker.child import LOG, Child
from strata.worker.errors import EngineError, Kind, ProtocolError, raised
from strata.worker.mailbox import Mailbox
from strata.worker.requests import Entry, Requests, Stage
from strata.worker.restarts import Restarts
from strata.worker.silence import Silence, Stalls
from strata.worker.status import State, Status
from strata.worker.wire import encode, encode_request

GRACE = 5.0
"""Seconds an engine has to end by itself."""

LOOK = 5.0
"""Seconds between two looks at how many processes the system has ended for want of memory; ours is a recent one."""

TICK = 0.1
"""Seconds between two looks at clocks."""


@dataclass(slots=True)
class _Life:
    """What is known of the process there is."""

    child: Child
    silence: Silence
    kills: int  # of the system for want of memory, as of 5 to 10 seconds ago
    newer: int  # the same, as of the last look
    looked: float
    ready_at: float | None = None
    answered: bool = False
    fatal: Cause | None = None
    ended: Cause | None = None  # why we ended it
    on_purpose: bool = False  # it was told to end
    kill_at: float | None = None


class Supervisor:
    """One thread that starts, hears and watches one engine at a time; all other methods may be called from anywhere."""

    def __init__(self, engine: m.ModelEngine | m.ScriptedEngine | m.CustomEngine, care: Care) -> None:
        self._engine = engine
        self._served = 0
        self._care = care
        self._changed = threading.Condition(threading.RLock())
        self._requests = Requests()
        self._leaving = Leaving()
        self._asked: dict[int, Future[Any]] = {}
        self._stalls = Stalls()
        self._restarts = Restarts(limit=care.starts, first=care.pause)
        self._state = State.ASLEEP if care.asleep else State.STARTING
        self._cause: Cause | None = None
        self._loaded: tuple[int, int] | None = None
        self._doing = ""
        self._ready: m.Ready | None = None
        self._stats: dict[str, Any] = {}
        self._life: _Life | None = None
        self._wanted = not care.asleep
        self._listeners: list[Callable[[], None]] = []
        self._closing = False
        self._nonce = 0
        self._used = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="strata-supervisor", daemon=True)

    # ---- for everybody

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def status(self) -> Status:
        """How the engine is now."""
        with self._changed:
            state, life = self._state, self._life
            if state is State.READY and len(self._requests):
                state = State.BUSY
            return Status(
                state=state,
                reason=self._cause.text if self._cause else "",
                loaded=self._share(),
                waiting=self._requests.count(Stage.WAITING, Stage.SENT),
                running=self._requests.count(Stage.STARTED),
                restarts=self._restarts.total,
                pid=life.child.pid if life else None,
                doing=self._doing,
                silent=life.silence.seconds if life else 0.0,
                stalls=self._stalls.count,
                longest=self._stalls.longest,
                cancels=self._leaving.counts,
            )

    @property
    def ready(self) -> m.Ready | None:
        """What the newest engine that was ready said of itself."""
        with self._changed:
            return self._ready

    @property
    def stats(self) -> dict[str, Any]:
        """Counters of the engine, as of its last sign of life."""
        with self._changed:
            return dict(self._stats)

    def wait_ready(self, seconds: float | None, on_load: Callable[[int, int], None] | None = None) -> m.Ready:
        """Wait until the engine is ready, waking it if it sleeps; `on_load` is called with its progress meanwhile.

        Raises:
            StrataError: it cannot be started; the class is the one of the error that the engine met.
            EngineError: it was not ready in time, or the client was closed.
        """
        end = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            if self._state is State.ASLEEP:
                self._want()
        told: tuple[int, int] | None = None
        while True:
            with self._changed:
                left = None if end is None else max(0.0, end - time.monotonic())
                if not self._settled() and self._loaded == told and not self._changed.wait(left):
                    text = f"the engine is not ready after {seconds:g} s: it is {self._state}"
                    raise EngineError(Kind.NOT_READY, text)
                ready = self._ready if self._state is State.READY else None
                if ready is None and self._settled():
                    raise self._no_engine()
                news = self._loaded if self._loaded != told else None
                told = self._loaded
            if on_load is not None and news is not None:
                on_load(*news)
            if ready is not None:
                return ready

    def submit(self, request: m.Submit) -> Mailbox:
        """Take a request, whatever the engine is doing.

        Raises:
            RequestError: its id is in use, or a field has a value of the wrong type or one that cannot be sent.
            QueueFullError: too many wait already.
            StrataError: there is no engine and will be none.
        """
        entry = Entry(request)
        frame = encode_request(request)
        with self._changed:
            if self._state in {State.FAILED, State.CLOSED} or self._closing:
                raise self._no_engine()
            if request.id in self._requests:
                raise RequestError(f"there is a request with the id {request.id!r} under way; choose another id")
            life = self._life
            if self._state is State.READY and life and not life.on_purpose:
                self._requests.sent(entry)
                self._served += 1
                life.child.send(frame if entry.name == request.id else encode(entry.order(time.monotonic())))
            elif self._requests.count(Stage.WAITING) >= self._care.queue:
                waiting = self._requests.count(Stage.WAITING)
                raise QueueFullError(running=len(self._requests) - waiting, waiting=waiting, bound=self._care.queue)
            self._requests.add(entry)
            self._want()
        return entry.mailbox

    def cancel(self, name: str, *, drop: bool) -> None:
        """End a request; with `drop` nobody reads its mailbox any more. Unknown names are ignored."""
        with self._changed:
            entry = self._requests.get(name)
            if entry is None:
                return
            if drop:
                self._requests.remove(name)
                entry.mailbox.fail(EngineError(Kind.SHUTDOWN, "the answer was closed"))
            elif entry.stage is Stage.WAITING:
                self._requests.finish(entry, "cancelled")
            if entry.stage is not Stage.WAITING:
                self._end(entry)

    def ask(self, kind: type[m.AskStats | m.AskTrace | m.Resize | m.Ping], **more: Any) -> "Future[Any]":
        """Ask the engine's loop something; the future holds the answering message, or an EngineError.

        Args:
            kind: the message. What the engine declines is an exception of the future's.
            more: its fields but for the nonce.
        """
        future: Future[Any] = Future()
        with self._changed:
            if self._state is not State.READY or self._life is None or self._life.on_purpose:
                future.set_exception(EngineError(Kind.NOT_READY, f"the engine is {self._state}"))
                return future
            self._nonce += 1
            self._asked[self._nonce] = future
            self._send(kind(self._nonce, **more))
        return future

    def restart(self) -> None:
        """Try again after giving up, or have another process in place of the one there is."""
        with self._changed:
            if self._state is State.FAILED:
                self._state = State.STARTING
                self._restarts.useless = 0
                self._want()
            elif self._life is not None:
                self._tell_to_end(self._life)
                self._set(State.RESTARTING)
                self._wanted = True

    def wake(self) -> None:
        """Start an engine that is not there, if it may be started; does not wait."""
        with self._changed:
            if self._state is State.FAILED:
                self.restart()
            elif self._state is State.ASLEEP:
                self._want()
                if self._life is None:
                    self._set(State.STARTING)

    def sleep(self) -> bool:
        """Unload an engine that has nothing to do; what it keeps is saved. Returns whether it goes."""
        with self._changed:
            if self._state is not State.READY or self._life is None or len(self._requests):
                return False
            self._tell_to_end(self._life, self._care.saving)
            self._set(State.ASLEEP)
            return True

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call this, from whatever thread, each time the state may be another. It must not wait for anything."""
        with self._changed:
            self._listeners.append(notify)

    def close(self, seconds: float = GRACE) -> None:
        """End the engine; what it is saving is completed. Requests under way fail with the kind shutdown."""
        with self._changed:
            if not self._closing:
                self._closing = True
                self._set(State.CLOSED)
                self._requests.fail(_shutdown, *Stage)
                if self._life is not None:
                    self._tell_to_end(self._life, seconds)
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(seconds + 3.0)
        elif not self._thread.is_alive():
            self._state = State.CLOSED

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closing)
                if self._closing:
                    self._state = State.CLOSED
                    self._changed.notify_all()
                    return
                self._wanted = False
                self._set(State.RESTARTING if self._restarts.total else State.STARTING)
            cause, life = self._one_life()
            pause = self._after(cause, life)
            if pause:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, pause)

    def _one_life(self) -> tuple[Cause | None, _Life | None]:
        """Start a process and hear it to its end; returns why it ended, None if it was told to."""
        try:
            patience = 2 * max(self._care.hang, self._care.loading_hang)
            child = Child(m.Start(m.PROTOCOL, self._engine, self._care.beat, patience, self._served))
        except (OSError, ProtocolError) as error:  # of the system; or what it is to run cannot be sent
            text = f"the engine's process cannot be started: {error}"
            return Cause(Kind.NOT_READY, text, retry=isinstance(error, OSError)), None
        kills = memory_kills()
        life = _Life(child, Silence(), kills, kills, time.monotonic())
        with self._changed:
            self._life = life
            if self._closing:
                self._tell_to_end(life)
        broken: Cause | None = None
        try:
            while (reports := child.receive(TICK)) is not None:
                with self._changed:
                    for report in reports:
                        if life.ready_at is not None:
                            self._stalls.ended(life.silence.seconds)
                        life.silence.heard()
                        self._hear(life, report)
                    self._watch(life)
                if life.ended is not None:
                    child.stacks()  # where it hangs, into the log
                    child.kill()
        except ProtocolError as error:
            broken = Cause(Kind.PROTOCOL, f"the engine's process sent garbage: {error}")
            child.kill()
        code = child.end(0.5 if life.ended else GRACE)
        cause = life.ended or life.fatal or broken
        if cause is None and not life.on_purpose:
            cause = explain(code, memory_kills=memory_kills() - life.kills)
        if cause is not None:
            LOG.error("engine %d: %s", child.pid, cause.text)
        return cause, life

    def _after(self, cause: Cause | None, life: _Life | None) -> float:
        """Decide what comes next; returns seconds to wait before it."""
        with self._changed:
            self._life, self._doing, self._loaded = None, "", None
            for future in self._asked.values():
                if future.set_running_or_notify_cancel():  # else nobody waits for it any more
                    future.set_exception(EngineError(Kind.ENGINE_DIED, "the engine ended before it answered"))
            self._asked.clear()
            if cause is None:  # told to: asleep, restarted or closed
                self._bury(_shutdown)
                if not self._requests.count(Stage.WAITING) and not self._wanted:
                    self._set(State.ASLEEP)
                else:
                    self._want()
                return 0.0
            self._cause = cause
            self._bury(lambda: raised(cause.kind, cause.text))
            if cause.retry:
                ready_for = time.monotonic() - life.ready_at if life and life.ready_at else 0.0
                pause = self._restarts.died(answered=bool(life and life.answered), ready_for=ready_for)
                if pause is not None:
                    self._set(State.RESTARTING)
                    self._want()
                    return pause
                count = self._restarts.useless
                text = f"the engine ended {count} times in a row without an answer; the last time: {cause.text}"
                self._cause = Cause(Kind.NOT_READY, text)
            # An engine that is loaded on demand is tried again at the next demand.
            on_demand = self._care.on_demand
            self._restarts.useless = 0
            self._requests.fail(self._no_engine, Stage.WAITING)
            self._wanted = False
            self._set(State.ASLEEP if on_demand else State.FAILED)
            return 0.0

    def _bury(self, error: Callable[[], StrataError]) -> None:
        """An engine is gone: fail what it had begun, keep what it had not."""
        before = self._requests.count(Stage.WAITING)
        self._requests.engine_died(error)
        self._leaving.died()
        self._served -= self._requests.count(Stage.WAITING) - before

    def _hear(self, life: _Life, report: m.Report) -> None:
        match report:
            case m.Progress() | m.Tokens() | m.Finished() | m.Failed():
                self._answer(life, report)
            case m.Beat():
                self._doing, self._stats = report.doing, report.stats
            case m.Stats() | m.Trace() | m.Resized() | m.Pong():
                if isinstance(report, m.Resized):
                    self._resized(report)
                future = self._asked.pop(report.nonce, None)
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_result(report)
            case m.Declined():
                future = self._asked.pop(report.nonce, None)
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_exception(raised(report.kind, report.message, report.error))
            case m.Fatal():
                life.fatal = Cause(report.kind, report.message, report.error, report.retry)
            case m.Hello() | m.Loading() | m.Ready() if not life.on_purpose:  # else it was told to end while it loads
                self._come_up(life, report)

    def _resized(self, report: m.Resized) -> None:
        """The next process takes as much as this one does now, not what the first one took."""
        if self._ready is not None:
            self._ready = msgspec.structs.replace(self._ready, placed=report.placed, plan=report.plan)
        if isinstance(self._engine, m.ModelEngine):
            self._engine = msgspec.structs.replace(self._engine, vram=report.vram)

    def _come_up(self, life: _Life, report: m.Hello | m.Loading | m.Ready) -> None:
        match report:
            case m.Hello():
                if report.protocol != m.PROTOCOL:
                    text = f"the engine's process speaks version {report.protocol} of the messages, not {m.PROTOCOL}"
                    life.ended = Cause(Kind.PROTOCOL, text, retry=False)
                self._set(State.LOADING)
            case m.Loading():
                self._loaded = report.done, report.total
                self._set(State.LOADING)
            case m.Ready():
                life.ready_at = self._used = time.monotonic()
                self._ready = report
                self._set(State.READY)
                self._flush(life)

    def _answer(self, life: _Life, report: m.Progress | m.Tokens | m.Finished | m.Failed) -> None:
        self._used = time.monotonic()
        self._leaving.heard(report, self._used)
        entry = self._requests.heard(report.id, last=isinstance(report, m.Finished | m.Failed))
        if entry is None:
            return  # nobody wants it any more
        if report.id != entry.request.id:
            report = msgspec.structs.replace(report, id=entry.request.id)
        entry.stage = Stage.STARTED
        life.answered = life.answered or not isinstance(report, m.Progress)
        if isinstance(report, m.Failed):
            self._requests.remove(report.id)
            entry.mailbox.fail(raised(report.kind, report.message, report.error, report.numbers))
            return
        entry.mailbox.put(report)
        if isinstance(report, m.Finished):
            self._requests.remove(report.id)
        elif entry.mailbox.unread > self._care.unread:
            self._requests.remove(report.id)
            text = f"{entry.mailbox.unread} tokens of the answer wait to be read, at most {self._care.unread} may"
            entry.mailbox.fail(EngineError(Kind.SLOW_READER, text))
            self._end(entry)

    def _end(self, entry: Entry) -> None:
        """Tell the engine that nobody wants a request any more."""
        self._leaving.told(entry.name, time.monotonic())
        self._send(m.Cancel(entry.name))

    def _watch(self, life: _Life) -> None:
        """Clocks: hanging, deadlines, idling, an end that takes too long."""
        now = time.monotonic()
        silent = life.silence.tick(now)
        limit = self._care.hang if self._state is State.READY else self._care.loading_hang
        if silent > limit and life.ended is None:
            text = f"the engine gave no sign of life for {limit:g} s and was ended"
            life.ended = Cause(Kind.ENGINE_HUNG, text)
        if life.kill_at is not None and now > life.kill_at:
            life.child.kill()
        if now - life.looked > LOOK:
            life.kills, life.newer, life.looked = life.newer, memory_kills(), now
        self._expire(now)
        idle = self._care.idle
        if idle is not None and self._state is State.READY and now - self._used > idle:
            self.sleep()

    def _expire(self, now: float) -> None:
        """End what waited too long for an engine."""
        for entry in self._requests.at(Stage.WAITING):
            left = entry.left(now)
            if left is not None and left <= 0:
                self._requests.finish(entry, "timeout")

    def _flush(self, life: _Life) -> None:
        """Give the engine what waited for it."""
        now = time.monotonic()
        for entry in self._requests.at(Stage.WAITING):
            self._requests.sent(entry)
            self._served += 1
            life.child.send(encode(entry.order(now)))

    # ---- under the lock

    def _set(self, state: State) -> None:
        self._state = State.CLOSED if self._closing else state
        self._changed.notify_all()
        for notify in self._listeners:
            notify()

    def _want(self) -> None:
        self._wanted = self._wanted or self._life is None or self._life.on_purpose
        self._changed.notify_all()

    def _send(self, message: m.Order) -> None:
        if self._life is not None:
            self._life.child.send(encode(message))

    def _tell_to_end(self, life: _Life, seconds: float = GRACE) -> None:
        life.on_purpose = True
        life.kill_at = time.monotonic() + seconds
        life.child.send(encode(m.Shutdown(seconds)))

    def _share(self) -> float:
        """How much of the loading is done."""
        if self._state is State.READY:
            return 1.0
        done, total = self._loaded or (0, 1)
        return done / max(1, total)

    def _settled(self) -> bool:
        """Nothing will change by waiting: it is ready, or will not be; asleep means that a start on demand failed."""
        if self._state is State.ASLEEP:
            return not self._wanted
        return self._state in {State.READY, State.FAILED, State.CLOSED}

    def _no_engine(self) -> StrataError:
        cause = self._cause
        if self._state is State.CLOSED or self._closing or cause is None:
            return _shutdown()
        return raised(cause.kind, cause.text, cause.error)


def _shutdown() -> EngineError:
    return EngineError(Kind.SHUTDOWN, "the engine is being ended")
