"""An engine's process as its client holds it: a socket, a log, and an end."""

import contextlib
import logging
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO

from strata.worker import messages as m
from strata.worker.wire import encode, receive, reports

LOG = logging.getLogger("strata.worker")
LOG.addHandler(logging.NullHandler())  # whoever wants to see it sets up logging

SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""torch's threads sleep where they wait for each other. Otherwise they spin for milliseconds and take their processors
from our own pool and from other programs: two threads on two busy cores took 5 to 40 times as long for a prompt.
Whoever sets the variable keeps it."""

LINE, LINES = 4096, 60
"""Bytes of a line of the log, and lines that are kept to be shown when the process dies."""


class Child:
    """A started process.

    Whoever starts it must stay alive as long: the kernel ends the process with the *thread* that started it.
    `send` never blocks; `receive` and `end` are for the starting thread.
    """

    def __init__(self, start: m.Start) -> None:
        """Start a process and tell it what to run.

        Raises:
            OSError: the system starts no further process.
            ProtocolError: the start cannot be sent.
        """
        first = encode(start)
        self._link, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "strata.worker", str(theirs.fileno()), str(os.getpid())]
            path = os.pathsep.join(entry for entry in sys.path if entry)
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own program
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env={**SLEEPING, **os.environ, "PYTHONPATH": path},
                    process_group=0,  # Ctrl-C in a terminal is for the client
                )
            except BaseException:
                self._link.close()
                raise
        self.started = time.monotonic()
        self.last_words: deque[str] = deque(maxlen=LINES)
        self._frames = reports()
        self._readable = select.poll()  # a time limit of the socket would hold for the writer as well
        self._readable.register(self._link, select.POLLIN)
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._threads = [
            threading.Thread(target=self._write, name="strata-send", daemon=True),
            threading.Thread(target=self._log, args=(self._process.stdout,), name="strata-log", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.send(first)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """Put a frame on its way; to a process that is gone it gets lost."""
        self._outbox.put(frame)

    def receive(self, seconds: float) -> list[m.Report] | None:
        """What has arrived, after waiting for at most so long; None when the process has closed its end.

        Raises:
            ProtocolError: what arrived is no message.
        """
        if not self._readable.poll(seconds * 1000):
            return []
        data = receive(self._link)
        if not data:
            self._frames.end()
            return None
        return list(self._frames.push(data))

    def stacks(self) -> None:
        """Have the process write where it is into the log."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)

    def kill(self) -> None:
        """End it on the spot."""
        self._process.kill()

    def end(self, seconds: float) -> int:
        """Wait for the end for so long, then enforce it; put everything away and return the exit code."""
        self._outbox.put(None)
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)  # wakes the writer, and tells the process
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for thread in self._threads:
            thread.join(2.0)  # a grandchild may hold the log open
        self._link.close()
        return code

    def _write(self) -> None:
        while (frame := self._outbox.get()) is not None:
            with contextlib.suppress(OSError):  # the receiver finds out that the process is gone
                self._link.sendall(frame)

    def _log(self, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(LINE):
                text = line.decode("utf-8", errors="replace").rstrip()
                if text:
                    self.last_words.append(text)
                    LOG.info("engine %d: %s", self.pid, text)
