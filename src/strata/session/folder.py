"""A folder of stored parts: written aside and renamed, one engine at a time, off the hot path."""

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from strata.errors import StrataError
from strata.model.memory import PLAIN, Memory
from strata.session import fileformat, packing
from strata.session.checksum import DIGEST
from strata.session.errors import StoredFileError
from strata.session.fileformat import Coming, Header
from strata.session.reading import Hands

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("strata.session")

SUFFIX = ".strata"
UNFINISHED = ".unfinished"
LOCK = "lock"

RESERVE = 1 << 30
"""Bytes that stay free on the disk."""


class FileState(Enum):
    """What became of a file."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class File:
    """A file that is there or will be.

    Attributes:
        path: where.
        header: what it holds.
        digest: of its header, so that another file put in its place is noticed.
        bytes: its size; while it is PENDING, the most it can have.
        state: PENDING until the writer is done with it.
        refs: parts that need it; with none left it is deleted.
        counted: whether its size is part of the folder's.
    """

    path: Path
    header: Header
    digest: bytes
    bytes: int
    state: FileState = FileState.PENDING
    refs: int = 1
    counted: bool = True


class Folder:
    """Files of one folder. All but the writing itself happens on the caller's thread."""

    def __init__(self, path: Path, fingerprint: str, *, reserve: int = RESERVE) -> None:
        """Take the folder for this process; it is made if it is not there.

        Args:
            path: the folder; its files are readable by their owner only, for they hold conversations.
            fingerprint: of model and settings.
            reserve: bytes that stay free on its disk.

        Raises:
            StrataError: it cannot be made, read or written, or another process has it.
        """
        packing.prepare()
        self.path = path
        self.fingerprint = fingerprint
        self._reserve = reserve
        self._foreign: dict[Path, int] = {}  # files of other models: kept for them, while there is room
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._hands = Hands()
        self._bytes_lock = threading.Lock()
        self._bytes = 0
        self._pending = 0
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StrataError(
                f"conversations cannot be stored in {path}: {error.strerror}; choose another folder"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = sorted(path.iterdir())
        except OSError as error:
            os.close(self._lock)
            reason = (
                "another process stores its conversations there"
                if error.errno in {errno.EAGAIN, errno.EACCES}
                else error.strerror
            )
            raise StrataError(f"conversations cannot be stored in {path}: {reason}; choose another folder") from error
        for name in names:
            if name.name.endswith(UNFINISHED):  # whoever wrote it was ended
                log.warning("%s: not finished when its writer ended; deleted", name)
                _unlink(name)
        self._writer = threading.Thread(target=self._write_all, name="strata-store", daemon=True)
        self._writer.start()

    @property
    def bytes(self) -> int:
        """Size of all files, those being written and those of other models included."""
        with self._bytes_lock:
            return self._bytes

    @property
    def pending(self) -> int:
        """Bytes that are still to be written."""
        with self._bytes_lock:
            return self._pending

    def scan(self) -> Iterator[File]:
        """Every file of ours, least recently used first. What cannot be used is named in the log and left alone."""
        found: list[tuple[float, File]] = []
        for path in sorted(self.path.iterdir()):
            if path.name == LOCK or not path.is_file():
                continue
            try:
                status = path.stat()
                header, digest = _header(path, self.fingerprint)
            except (StoredFileError, OSError) as error:
                log.warning("%s: not used: %s", path, error)
                if path.suffix == SUFFIX:
                    with contextlib.suppress(OSError):
                        self._foreign[path] = path.stat().st_size
                        self._count(self._foreign[path])
                continue
            self._count(status.st_size)
            found.append((status.st_mtime, File(path, header, digest, status.st_size, FileState.READY, 0)))
        yield from (file for _, file in sorted(found, key=lambda pair: pair[0]))

    def save(self, header: Header, tensors: Mapping[str, "Tensor"]) -> File:
        """Write a file some time soon. The tensors must not change any more."""
        front = fileformat.front(header)
        file = File(self.path / name_of(header), header, front[-DIGEST:], fileformat.size_of(header, len(front)))
        self._count(file.bytes - self._foreign.pop(file.path, 0), file.bytes)  # one that was damaged is replaced
        self._jobs.put(lambda: self._save(file, tensors))
        return file

    def begin(self, file: File, memory: Memory = PLAIN) -> Coming:
        """Have a file read to memory; several are read at once, the first ones first.

        Raises:
            StoredFileError: it is not what was stored.
        """
        try:
            coming = Coming(file.path, memory, self._hands, (file.header, file.digest))
        except OSError as error:
            raise StoredFileError(f"it cannot be read: {error.strerror}") from error
        if coming.digest != file.digest:
            raise StoredFileError("another file took its place")
        return coming

    def load(self, file: File, memory: Memory = PLAIN) -> dict[str, "Tensor"]:
        """A file's tensors, after the whole of it was checked.

        Raises:
            StoredFileError: it is not what was stored.
        """
        return arrived(self.begin(file, memory))

    def used(self, file: File) -> None:
        """Remember that a file was of use, over restarts as well."""
        self._jobs.put(lambda: _touch(file.path))

    def forget(self, file: File) -> None:
        """One part fewer needs a file."""
        file.refs -= 1
        assert file.refs >= 0, f"{file.path} was given up more often than it was needed"
        if file.refs == 0:
            self.discard(file)

    def discard(self, file: File) -> None:
        """Delete a file that nobody needs, or do not write it."""
        assert file.refs == 0
        self._uncount(file)
        self._jobs.put(lambda: self._delete(file))

    def forget_foreign(self, over: Callable[[], bool]) -> None:
        """Delete files that are of no use to us, the oldest first, while `over` says there is too much."""
        for path in sorted(self._foreign, key=_age):
            if not over():
                return
            log.warning("%s: deleted to make room", path)
            _unlink(path)
            self._count(-self._foreign.pop(path))

    def close(self) -> None:
        """Finish all writing and give the folder back."""
        if self._writer.is_alive():
            self._jobs.put(None)
            self._writer.join()
            self._hands.close()
            os.close(self._lock)

    def _write_all(self) -> None:
        while job := self._jobs.get():
            try:
                job()
            except Exception:
                log.exception("a stored conversation could not be worked on")

    def _save(self, file: File, tensors: Mapping[str, "Tensor"]) -> None:
        most = file.bytes
        try:
            if file.refs:
                self._came_out(file, self._write(file, tensors))
                file.state = FileState.READY
        except OSError as error:
            log.warning("%s: not stored: %s", file.path, error.strerror or error)
        finally:
            if file.state is not FileState.READY:
                file.state = FileState.FAILED
                self._uncount(file)
            self._count(0, -most)

    def _write(self, file: File, tensors: Mapping[str, "Tensor"]) -> int:
        """Returns its size."""
        free = shutil.disk_usage(self.path).free
        if free - file.bytes < self._reserve:
            raise OSError(0, f"needs {file.bytes} bytes, and {self._reserve} of {free} free ones are to stay free")
        aside = file.path.with_name(file.path.name + UNFINISHED)
        try:
            handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(handle, "wb") as out:  # noqa: PTH123  # a descriptor made with its permissions
                size = fileformat.write(out, file.header, tensors)
                out.flush()
                os.fsync(out.fileno())
            aside.replace(file.path)
        except OSError:
            _unlink(aside)
            raise
        _sync(self.path)
        return size

    def _delete(self, file: File) -> None:
        if file.state is FileState.READY:
            _unlink(file.path)

    def _uncount(self, file: File) -> None:
        with self._bytes_lock:
            if file.counted:
                file.counted = False
                self._bytes -= file.bytes

    def _came_out(self, file: File, size: int) -> None:
        """Count what a file has instead of the most it could have; it may have been given up meanwhile."""
        with self._bytes_lock:
            if file.counted:
                self._bytes += size - file.bytes
            file.bytes = size

    def _count(self, size: int, pending: int = 0) -> None:
        with self._bytes_lock:
            self._bytes += size
            self._pending += pending


def arrived(coming: Coming) -> dict[str, "Tensor"]:
    """The tensors of a file that was begun, after the whole of it was checked.

    Raises:
        StoredFileError: it is not what was stored.
    """
    try:
        return coming.tensors()
    except OSError as error:
        raise StoredFileError(f"it cannot be read: {error.strerror}") from error


def name_of(header: Header) -> str:
    """A file's name follows from what it holds, so the same part is never stored twice."""
    key = repr((header.fingerprint, header.kind, header.salt, header.start, header.symbols)).encode()
    return blake2b(key, digest_size=20).hexdigest() + SUFFIX


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s: cannot be deleted: %s", path, error.strerror)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _sync(path: Path) -> None:
    """Make a renaming durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _header(path: Path, fingerprint: str) -> tuple[Header, bytes]:
    header, digest = fileformat.read_header(path)
    if header.fingerprint != fingerprint:
        raise StoredFileError("it belongs to another model, other settings or another version")
    if path.name != name_of(header):
        raise StoredFileError(f"its name should be {name_of(header)}")
    return header, digest
