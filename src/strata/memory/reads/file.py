"""A file to read pieces of, past the system's cache where that can be done."""

import errno
import logging
import os
from pathlib import Path

from strata.memory.errors import StorageError
from strata.memory.reads.pread import aligned

BLOCKS = (4096, 16384, 65536)
"""Sizes that direct reads may have to be multiples of, tried in this order."""

REFUSED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""Error numbers with which file systems say that they do not read directly."""

log = logging.getLogger("strata.memory")


class ReadFile:
    """One file, open until the last reference goes.

    Direct reads take nothing of the system's cache, so they leave the machine's memory to others, and they ask the disk
    for what is wanted instead of for what may come next. Some file systems refuse them: then reads go through the
    cache, and one warning says so.

    Attributes:
        path: as it was given.
        size: bytes, when it was opened.
        block: what places, lengths and addresses of direct reads are multiples of; 1 where reads are not direct.
    """

    __slots__ = ("__weakref__", "_buffered", "_direct", "_warned", "block", "path", "size")

    def __init__(self, path: Path, *, direct: bool = True) -> None:
        self.path = path
        self._direct = -1
        self._warned = False
        self.block = 1
        self._buffered = -1
        try:
            self._buffered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._buffered).st_size
        except OSError as error:
            self.close()
            raise StorageError(f"{path}: cannot be opened: {error.strerror}") from error
        if direct and self.size:
            self._open_direct()

    def __del__(self) -> None:
        self.close()

    @property
    def direct(self) -> bool:
        """Whether reads pass the system's cache."""
        return self.block > 1

    @property
    def descriptor(self) -> int:
        """For reads of whole blocks, or of anything where reads are not direct."""
        return self._direct if self.direct else self._buffered

    def around(self, offset: int, nbytes: int) -> tuple[int, int]:
        """First byte and number of bytes of the blocks that hold a piece."""
        first = offset - offset % self.block
        return first, -(-(offset + nbytes) // self.block) * self.block - first

    def refuse(self, why: str) -> None:
        """Read through the cache from now on, and say so once."""
        if not self._warned:
            log.warning(
                "%s cannot be read directly (%s); it is read through the system's file cache instead, which takes "
                "memory from other programs and is slower from a fast disk",
                self.path, why,
            )  # fmt: skip
        self._warned, self.block = True, 1

    def read(self, target: memoryview, offset: int) -> None:
        """Fill a piece of memory through the cache, in this thread.

        Raises:
            StorageError: the disk fails, or the file has become shorter.
        """
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self._buffered, [target[done:]], offset + done)
            except OSError as error:
                raise self.failed(offset + done, error.errno or 0) from error
            if count == 0:
                raise self.ended(offset + done)
            done += count

    def failed(self, offset: int, number: int) -> StorageError:
        """The error of a read that the system refused."""
        return StorageError(f"{self.path}: reading at byte {offset} failed: {os.strerror(number)}")

    def ended(self, offset: int) -> StorageError:
        """The error of a read behind the end."""
        return StorageError(
            f"{self.path}: ends near byte {offset}, but was {self.size} bytes long when it was opened; was it changed "
            "meanwhile?"
        )

    def close(self) -> None:
        """Close it. Nothing may be under way."""
        for name in ("_direct", "_buffered"):
            descriptor = getattr(self, name, -1)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)

    def _open_direct(self) -> None:
        """Open it a second time and read one block: some file systems refuse the one, some the other."""
        flag = getattr(os, "O_DIRECT", 0)
        if not flag:
            self.refuse("this system has no direct reads")
            return
        try:
            self._direct = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | flag)
        except OSError as error:
            self.refuse(os.strerror(error.errno or 0))
            return
        why = "no size of blocks will do"
        for block in BLOCKS:
            try:
                os.preadv(self._direct, [aligned(block, block).data], 0)
            except OSError as error:
                why = os.strerror(error.errno or 0)
                if error.errno not in REFUSED:
                    raise self.failed(0, error.errno or 0) from error
            else:
                self.block = block
                return
        self.refuse(why)
