"""Ctrl-C: outside a conversation it ends the process on the spot."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from strata.cli import progress

INTERRUPTED = 130
"""Exit code: 128 and the number of the signal, as shells have it."""


class Interrupts:
    """What SIGINT does while a command runs.

    A command that answers once has nothing to put away: all output is flushed as it is written, and the process that
    renders templates ends with ours. So it leaves at once. An exception would be slower and less sure: raised while
    torch is being imported it gets lost, or leaves locks behind that nobody opens again. Only a conversation asks for
    the exception, to come back to its prompt; a second Ctrl-C before it did leaves. Measurements, which have something
    to keep, only take note of the first.

    Nothing is installed where the process was started with SIGINT ignored (as a background job).
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._raise = False
        self._noted: threading.Event | None = None

    def __enter__(self) -> Self:
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first SIGINT is a KeyboardInterrupt."""
        self._raise = True
        try:
            yield
        finally:
            self._raise = False

    @contextmanager
    def noting(self) -> Iterator[threading.Event]:
        """Inside, the first SIGINT sets what is given, for work that looks at it; the second one ends the process."""
        self._noted = noted = threading.Event()
        try:
            yield noted
        finally:
            self._noted = None

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._noted is not None and not self._noted.is_set():
            self._noted.set()
            return
        if self._raise:
            self._raise = False
            raise KeyboardInterrupt
        if sys.stderr.isatty():
            os.write(2, progress.farewell())
        os._exit(INTERRUPTED)
