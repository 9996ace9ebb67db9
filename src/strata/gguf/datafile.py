"""One file opened for reading: a read-only mapping, its size, and exact reads."""

import errno
import mmap
import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata.errors import GgufError
from strata.gguf.shown import shown_path

U8 = NDArray[np.uint8]


class DataFile:
    """A regular file, mapped read-only; closed when the last reference (views included) goes.

    Attributes:
        path: as it was given, links not followed.
        size: bytes, taken once when the file was opened.
        mapping: the whole file; slices are copies.
        buffer: the same as uint8 [size], read-only; slices are views. Touching either reads pages on demand.
    """

    __slots__ = ("__weakref__", "_descriptor", "buffer", "mapping", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Looked at before opening: opening a named pipe would wait for its writer.
            if not stat.S_ISREG(path.stat().st_mode):
                raise GgufError(f"{self}: not a regular file")
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise GgufError(f"{self}: no such file") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL inside the path
            raise GgufError(f"{self}: cannot be opened: {_reason(error)}") from error
        weakref.finalize(self, os.close, self._descriptor)
        try:
            self.size = os.fstat(self._descriptor).st_size
            # An empty file cannot be mapped.
            self.mapping = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ) if self.size else b""
        except (OSError, ValueError) as error:
            raise GgufError(f"{self}: cannot be mapped into memory: {_reason(error)}") from error
        self.buffer: U8 = np.frombuffer(self.mapping, dtype=np.uint8)

    def __str__(self) -> str:
        return shown_path(self.path)

    def read_into(self, target: U8, offset: int) -> None:
        """Fill a contiguous uint8 array with the bytes at ``offset``, by reading and not through the mapping.

        Reads exactly these bytes, where a mapping would pull in whole read-ahead windows around each page, and
        reports a failing disk as an error, where a mapping would end the process. Short reads are continued.

        Raises:
            GgufError: the disk fails, or the file has become shorter since it was opened.
        """
        view = target.reshape(-1).data
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
            except OSError as error:
                raise GgufError(f"{self}: reading at byte {offset + done} failed: {_reason(error)}") from error
            if count == 0:
                raise GgufError(
                    f"{self}: ends before byte {offset + done}, but was {self.size} bytes long when it was opened; "
                    "was it changed meanwhile?"
                )
            done += count

    def holes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Byte ranges inside [start, end) that were never written, as far as the file system knows."""
        while start < end:
            hole = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            if hole >= end:
                return
            try:
                start = os.lseek(self._descriptor, hole, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: no data up to the end of the file
                    raise GgufError(f"{self}: cannot be searched for holes: {_reason(error)}") from error
                start = self.size
            yield hole, min(start, end)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
