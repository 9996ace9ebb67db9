"""How far a download is: a bar where a person looks on, else a line now and then."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strata.cli.progress import on_screen
from strata.memory.budget.shown import shown_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 30.0
"""Seconds between two lines."""


class Download:
    """Shows bytes, speed and the time that is left."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._bar: Progress | None = None
        self._last = time.monotonic()

    def step(self, done: int, total: int) -> None:
        """Note how far it is."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        elif time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            sys.stderr.write(f"strata: {shown_bytes(done)} of {shown_bytes(total)}\n")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._bar.add_task(self.label, total=None)
            on_screen(drawn=True)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
            on_screen(drawn=False)
