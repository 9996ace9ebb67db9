"""Ctrl-C: the first stops the work in order, the second leaves at once."""

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

_SHOW_CURSOR = b"\x1b[?25h\x1b[0m\n"


class Interrupts:
    """Turns the first SIGINT into KeyboardInterrupt and a second, while that one is under way, into the end.

    Without this a second Ctrl-C would hit the cleaning up and print a traceback. Nothing is installed where the
    process was started with SIGINT ignored (as a background job).
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._stopping = False

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # After an interrupt the handler stays: the interpreter still has to shut down.
        if self._before is not None and not self._stopping:
            signal.signal(signal.SIGINT, self._before)

    def rearm(self) -> None:
        """The interrupt has been dealt with; the next one is a first one again."""
        self._stopping = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._stopping:
            self._stopping = True
            raise KeyboardInterrupt
        if sys.stderr.isatty():
            os.write(2, _SHOW_CURSOR)  # a progress bar may have hidden it
        os._exit(130)
