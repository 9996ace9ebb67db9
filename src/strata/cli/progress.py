"""A progress bar for work that turns out to take long."""

import contextlib
import sys
import threading
from types import TracebackType
from typing import Self

PATIENCE = 1.0
"""Seconds of silence before the bar appears."""

_shown = threading.Event()  # whether a bar is on the screen


def farewell() -> bytes:
    """What to write to the terminal when the process ends on the spot: no bar, a cursor, a fresh line."""
    return b"\r\x1b[2K\x1b[?25h" if _shown.is_set() else b"\n"


def on_screen(*, drawn: bool) -> None:
    """Note that a bar is drawn, so that a process that ends on the spot leaves the terminal as it was."""
    (_shown.set if drawn else _shown.clear)()


class Bar:
    """Appears on stderr after a second, if a person looks on, and leaves no trace.

    All drawing is done by a thread of its own: the work only leaves two numbers.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._done = 0
        self._total: int | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self, done: int, total: int) -> None:
        """Note how far the work is."""
        self._done, self._total = done, total

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            # Not in the thread: an interrupt while both import would leave the thread waiting for ever.
            import rich.progress  # noqa: F401

            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self._over.wait(PATIENCE):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        on_screen(drawn=True)
        # A terminal that went away is found out by whoever writes results.
        with (
            contextlib.suppress(OSError),
            Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress,
        ):
            task = progress.add_task(self.label, total=None)
            while not self._over.wait(0.1):
                progress.update(task, description=self.label, completed=self._done, total=self._total)
        on_screen(drawn=False)
