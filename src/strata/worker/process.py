"""The engine's process: build the engine, then messages and work in turn until told to end."""

import contextlib
import ctypes
import faulthandler
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import NoReturn, cast

import msgspec

from strata.errors import StrataError
from strata.worker import messages as m
from strata.worker.engine import Answer, Engine, OnLoad, refused
from strata.worker.errors import Kind, ProtocolError, is_memory
from strata.worker.wire import encode, orders, receive

GRACE = 5.0
"""Seconds that pending saves may take at the end."""

FATAL, OUT_OF_MEMORY, REFUSED = 70, 71, 72
"""Exit codes: a fault of ours, memory, an engine that could not be built."""

TERMINATED = 128 + signal.SIGTERM
"""Exit code after a SIGTERM."""

_PDEATHSIG = 1


class Process:
    """The main loop, and a thread that reads messages for it.

    Signs of life come from the loop itself, between two units of work, so one that hangs is seen to hang.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._inbox: queue.SimpleQueue[m.Order | None] = queue.SimpleQueue()  # None: the other side is gone
        self._came: dict[str, float] = {}  # when orders to end a request were read, until they are obeyed
        self._taking = threading.Lock()  # an order is in the inbox from the time that is noted for it
        self._ending: dict[str, float] = {}  # of those that are obeyed, until the next unit of work is over
        self._beat = 0.25
        self._patience = 600.0
        self._beaten = 0.0
        self._serving = False
        self._code = 0
        self._grace = GRACE
        self._sending = threading.Lock()  # the loop, and the reader when it finds garbage

    def run(self) -> int:
        """Serve until told to end; returns the exit code."""
        threading.Thread(target=self._read, name="strata-messages", daemon=True).start()
        start = self._inbox.get()
        if not isinstance(start, m.Start):
            return FATAL if start is None else self._fatal(Kind.PROTOCOL, "the first message must be a start", FATAL)
        self._send(m.Hello(m.PROTOCOL, os.getpid()))
        if start.protocol != m.PROTOCOL:
            text = f"the engine's process speaks version {m.PROTOCOL} of the messages, its client {start.protocol}"
            return self._fatal(Kind.PROTOCOL, text, REFUSED, retry=False)
        self._beat, self._patience = start.beat, start.patience
        try:
            engine = build(start, self._loaded)
        except StrataError as error:
            return self._fatal(Kind.NOT_READY, str(error), REFUSED, error, retry=False)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client hears of it
            return self._broken(error, "while the engine was being loaded")
        return self._serve(engine)

    def _serve(self, engine: Engine) -> int:
        self._serving = True
        try:
            self._send(engine.ready)
            self._work(engine)
        except ConnectionError:
            pass  # nobody listens any more
        except Exception as error:  # noqa: BLE001
            return self._broken(error, "in the engine's loop")
        finally:
            self._alarm(self._grace)
            engine.close()
        return self._code

    def end(self, _number: int = 0, _frame: object = None) -> None:
        """SIGTERM: end after the unit of work that is under way, as if the client had gone."""
        if not self._serving:
            os._exit(TERMINATED)
        self._code = TERMINATED
        self._inbox.put(None)  # a simple queue may be used in a signal handler

    def _work(self, engine: Engine) -> None:
        while True:
            idle = engine.idle
            pause = self._beat if idle else min(self._beat, engine.wait())
            for order in self._orders(pause):
                if order is None or isinstance(order, m.Shutdown):
                    self._grace = GRACE if order is None else max(GRACE, order.seconds)
                    return
                self._obey(engine, order)
            if not engine.idle:
                scarce = broken = ""
                for answer in engine.tick():
                    self._send(self._dated(answer))
                    if isinstance(answer, m.Failed) and answer.kind is Kind.OUT_OF_MEMORY:
                        scarce = f"of the request {answer.id!r}"
                    elif isinstance(answer, m.Failed) and answer.kind is Kind.ENGINE_DIED:
                        broken = answer.message
                self._ending.clear()  # whatever was cancelled has ended with this unit
                if broken:  # nor can this one use its device again
                    raise RuntimeError(broken)
                if scarce:  # a new process begins with all that this one has taken
                    raise MemoryError(scarce)
            self._live(engine)

    def _dated(self, answer: Answer) -> Answer:
        """The end of a request that was cancelled says when the order came."""
        if self._ending and isinstance(answer, m.Finished) and answer.id in self._ending:
            return msgspec.structs.replace(answer, told=self._ending[answer.id])
        return answer

    def _orders(self, pause: float) -> list[m.Order | None]:
        """What has arrived, after waiting for it for at most `pause` seconds."""
        found: list[m.Order | None] = []
        with contextlib.suppress(queue.Empty):
            if pause > 0:
                found.append(self._inbox.get(timeout=pause))
            with self._taking:
                while True:
                    found.append(self._inbox.get_nowait())
        return found

    def _obey(self, engine: Engine, order: m.Order) -> None:
        match order:
            case m.Submit():
                self._submit(engine, order)
            case m.Cancel():
                self._ending[order.id] = self._came.pop(order.id, time.monotonic())
                engine.cancel(order.id)
            case m.Ping():
                self._send(m.Pong(order.nonce, _doing(engine)))
            case m.AskStats():
                self._send(m.Stats(order.nonce, engine.stats(), engine.holdings()))
            case m.AskTrace():
                self._send(m.Trace(order.nonce, engine.trace(order.windows)))
            case m.Resize():
                self._resize(engine, order)
            case m.Start() | m.Shutdown():
                raise ProtocolError(f"a message of type {type(order).__name__} came where none may")

    def _submit(self, engine: Engine, request: m.Submit) -> None:
        try:
            engine.submit(request)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # a fault in one request is that request's
            self._send(refused(request.id, error))

    def _resize(self, engine: Engine, order: m.Resize) -> None:
        try:
            done: m.Resized | m.Declined = engine.resize(order.vram, order.nonce)
        except StrataError as error:  # any other leaves the device in a state that nobody knows
            done = m.Declined(order.nonce, Kind.BAD_REQUEST, str(error), type(error).__name__)
        self._send(done)

    def _live(self, engine: Engine) -> None:
        """Give a sign of life if one is due."""
        now = time.monotonic()
        if now - self._beaten >= self._beat:
            self._beaten = now
            self._alarm(self._patience)
            self._send(m.Beat(_doing(engine), engine.stats()))

    def _loaded(self, done: int, total: int) -> None:
        """Progress of loading, as often as signs of life; the last one always."""
        now = time.monotonic()
        if now - self._beaten >= self._beat or done >= total:
            self._beaten = now
            self._alarm(self._patience)
            with contextlib.suppress(ConnectionError):
                self._send(m.Loading(done, total))

    def _send(self, message: m.Report) -> None:
        frame = encode(message)
        with self._sending:
            self._link.sendall(frame)

    def _alarm(self, seconds: float) -> None:
        """End the process, with all stacks in the log, unless this is called again in time.

        A thread of C does it: it needs nothing that a hung loop could hold. The client's watchdog comes first; this
        is for a process whose client is gone.
        """
        faulthandler.dump_traceback_later(seconds, exit=True)

    def _broken(self, error: Exception, where: str) -> int:
        """Report an error that ends the process."""
        faulthandler.cancel_dump_traceback_later()
        if is_memory(error):
            return self._fatal(Kind.OUT_OF_MEMORY, f"memory ran out {where}: {error or 'MemoryError'}", OUT_OF_MEMORY)
        import traceback

        traceback.print_exc()  # into the log
        text = f"unexpected {type(error).__name__} {where}: {error} (this is a bug in strata; the log has the place)"
        return self._fatal(Kind.ENGINE_DIED, text, FATAL, error)

    def _fatal(self, kind: Kind, text: str, code: int, error: Exception | None = None, *, retry: bool = True) -> int:
        with contextlib.suppress(OSError):
            said = text.encode(errors="backslashreplace").decode()  # it may hold the name of a file that is no text
            self._send(m.Fatal(kind, said, type(error).__name__ if error else "", retry))
        return code

    def _read(self) -> None:
        """Messages into the inbox; the end of the connection is the end of us, in an orderly way or without."""
        frames = orders()
        try:
            while data := receive(self._link):
                for order in frames.push(data):
                    with self._taking:
                        if isinstance(order, m.Cancel):
                            self._came[order.id] = time.monotonic()
                        self._inbox.put(order)
            frames.end()
        except ProtocolError as error:
            self._fatal(Kind.PROTOCOL, str(error), FATAL)
        self._inbox.put(None)
        time.sleep(GRACE)
        os._exit(FATAL)


def build(start: m.Start, on_load: OnLoad) -> Engine:
    """Make the engine that a `Start` asks for.

    Raises:
        StrataError: it cannot be made.
    """
    engine = start.engine
    match engine:
        case m.ModelEngine():
            from strata.worker.resident import Resident

            return Resident.load(engine, on_load)
        case m.ScriptedEngine():
            from strata.worker.scripted import Scripted

            return Scripted.load(engine, on_load, start.served)
        case m.CustomEngine():
            module, _, name = engine.build.partition(":")
            return cast("Engine", getattr(importlib.import_module(module), name)(engine.values, on_load))


def _doing(engine: Engine) -> str:
    return "idle" if engine.idle else "working"


def main(descriptor: int, parent: int) -> NoReturn:
    """Run on an inherited socket.

    Args:
        descriptor: number of the socket.
        parent: process id of whoever started this; gone means there is nothing to do.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the client's to decide on
    process = Process(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGTERM, process.end)
    # The kernel's word when the client dies, beside the end of the connection.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(0)
    faulthandler.enable()  # a crash leaves its stacks in the log
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # so does the client before it ends a hung process
    os.set_inheritable(descriptor, False)  # noqa: FBT003  # the function takes no names
    code = process.run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)  # threads of libraries must not keep a finished process
