"""A file for a trace, opened before the work so that a wrong path is found before it."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from strata.errors import StrataError


class Traced:
    """A trace file, or none."""

    def __init__(self, path: Path | None) -> None:
        """Open the file.

        Raises:
            StrataError: it cannot be written.
        """
        self._path = path
        try:
            self._file = None if path is None else path.open("wb")
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, trace: Callable[[], bytes]) -> None:
        """Ask for a trace and write it, if there is a file for it."""
        if self._file is None:
            return
        try:
            self._file.write(trace())
            self._file.flush()
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StrataError:
        return StrataError(f"the trace cannot be written to {self._path}: {error.strerror or error}")
