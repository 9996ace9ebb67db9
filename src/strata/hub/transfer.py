"""One file from a hub to the disk: resumed where it broke off, and checked before it has its name."""

import errno
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from strata.hub.errors import HubError
from strata.hub.listing import Listing, RemoteFile
from strata.hub.remote import BusyError, Hub
from strata.memory.budget.shown import shown_bytes

PIECE = 8 << 30
"""Bytes asked for at a time: servers in front of large stores cut answers of 50 GB and more."""

CHUNK = 1 << 20
"""Bytes of a file that are checked at a time."""

TRIES = 6
"""Times in a row that nothing comes before a download is given up; with growing pauses about two minutes."""

LONGEST_WAIT = 60.0
"""Seconds of a pause."""

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Downloads into a folder of unfinished files.

    Attributes:
        hub: where from.
        listing: whose files.
        parts: folder for what is not complete.
        on_bytes: called with the number of bytes that came, or were there already; less than 0 where they have to come
            again.
        pause: sleeps; a test's does not.
    """

    hub: Hub
    listing: Listing
    parts: Path
    on_bytes: OnBytes = lambda _: None
    pause: Callable[[float], None] = time.sleep

    def part(self, file: RemoteFile) -> Path:
        """Where a file is while it is not complete; named by its content, so that nothing else is ever resumed."""
        named = f"{self.listing.repo}\0{file.path}\0{file.size}\0{file.sha256 or file.blob}"
        return self.parts / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.part"

    def fetch(self, file: RemoteFile, to: Path) -> None:
        """Have a file complete and checked at `to`.

        Raises:
            HubError: it cannot be had, is not what it should be, or the disk is full. What came stays for the next
                time,
                unless it is wrong.
        """
        part = self.part(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        digest, have = _begun(part, file)
        self.on_bytes(have)
        try:
            self._rest(file, part, digest, have)
        except OSError as error:
            raise _disk(error, part, file) from error
        self._check(file, part, digest)
        to.parent.mkdir(parents=True, exist_ok=True)
        part.replace(to)

    def _rest(self, file: RemoteFile, part: Path, digest: "hashlib._Hash", have: int) -> None:
        failed = 0
        while have < file.size:
            before = have
            try:
                have = self._piece(file, part, digest, have)
                lost: BusyError | None = None
            except BusyError as error:
                lost, have = error, part.stat().st_size if part.exists() else 0
            if have > before:
                failed = 0
                continue
            failed += 1
            if failed >= TRIES:
                raise HubError(
                    f"{file.path}: {lost or 'nothing comes any more'}; {shown_bytes(have)} of {shown_bytes(file.size)} "
                    "are here, "
                    "and the same command goes on from there"
                ) from lost
            wait = lost.wait if lost is not None and lost.wait is not None else 2.0**failed
            self.pause(min(wait, LONGEST_WAIT))

    def _piece(self, file: RemoteFile, part: Path, digest: "hashlib._Hash", have: int) -> int:
        """Append what one request brings; the bytes there are then."""
        with (
            self.hub.body(self.listing, file, have, min(file.size, have + PIECE)) as body,
            part.open("ab", buffering=0) as out,
        ):
            skip = have - body.start  # a server that does not care for ranges sends all of it again
            for chunk in body.chunks():
                fresh = memoryview(chunk)[min(skip, len(chunk)) :]
                skip -= len(chunk) - len(fresh)
                fresh = fresh[: file.size - have]
                while fresh:
                    written = out.write(fresh)  # short where the disk is about to be full
                    digest.update(fresh[:written])
                    have += written
                    self.on_bytes(written)
                    fresh = fresh[written:]
        return have

    def _check(self, file: RemoteFile, part: Path, digest: "hashlib._Hash") -> None:
        expected, found = file.sha256 or file.blob, digest.hexdigest()
        if expected is None:
            raise HubError(f"{self.hub.address} has no checksum for {file.path}; it is not used")
        if found != expected:
            part.unlink()
            self.on_bytes(-file.size)
            raise HubError(
                f"{file.path} is damaged: its checksum is {found[:16]}…, not {expected[:16]}… as {self.hub.address} "
                "says. It was "
                "removed; run the same command again, or take another --hub-endpoint"
            )


def new_digest(file: RemoteFile) -> "hashlib._Hash":
    """SHA-256, or for files that git itself keeps, its blob's SHA-1."""
    if file.sha256 is not None:
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(f"blob {file.size}\0".encode())
    return digest


def matches(path: Path, file: RemoteFile) -> bool:
    """Whether a file on the disk is the one that is meant, byte for byte."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    digest = new_digest(file)
    _feed(path, digest)
    return digest.hexdigest() == (file.sha256 or file.blob)


def _begun(part: Path, file: RemoteFile) -> tuple["hashlib._Hash", int]:
    """The checksum of what is there already, and its bytes."""
    digest = new_digest(file)
    if part.exists() and part.stat().st_size > file.size:
        part.unlink()
    if not part.exists():
        part.touch()
        return digest, 0
    _feed(part, digest)
    return digest, part.stat().st_size


def _feed(path: Path, digest: "hashlib._Hash") -> None:
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHUNK):
            digest.update(block)


def _disk(error: OSError, part: Path, file: RemoteFile) -> HubError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        stat = os.statvfs(part.parent)
        here = part.stat().st_size
        return HubError(
            f"the disk is full: {file.path} needs {shown_bytes(file.size - here)} more, and "
            f"{shown_bytes(stat.f_bavail * stat.f_frsize)} are free below {part.parent}; make room, and run the same "
            "command again: "
            "it goes on from here"
        )
    return HubError(f"{part}: cannot be written: {error.strerror or error}")
