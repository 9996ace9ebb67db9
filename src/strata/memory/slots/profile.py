"""What a cache has learned, kept for the next start.

    0    8   magic "StrataXP"
    8    4   format version                                  all numbers little-endian
    12   4   h, bytes of the header
    16   h   header: JSON with fingerprint, layers, experts
    ..       quick counts, then slow counts: float32 [L, E] each
    ..   32  BLAKE2b of everything before

A file is written aside, made durable, and renamed: after a crash there is the old one or the new one, never a mix
(case Q06). One that is torn, damaged, or of another model is refused with the reason, and the start goes on without.
"""

import contextlib
import json
import math
import os
import struct
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata.memory.slots.errors import NoProfileError, ProfileError

MAGIC = b"StrataXP"
VERSION = 1
FIXED = struct.Struct("<8sII")
DIGEST = 32
LARGEST_HEADER = 4096
UNFINISHED = ".unfinished"
ABANDONED = 3600.0
"""Seconds after which an unfinished file has no writer any more; writing takes milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """How often each expert was visited lately.

    Attributes:
        quick: [L, E], the count that fades quickly, in visits.
        slow: [L, E], the count that fades slowly.
    """

    quick: NDArray[np.floating]
    slow: NDArray[np.floating]

    def save(self, path: Path, fingerprint: str) -> None:
        """Write a file, or leave the one that is there as it is.

        Args:
            path: where; its folder is made if it is not there.
            fingerprint: of the model whose experts were counted.

        Raises:
            ProfileError: it cannot be written.
        """
        aside = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _clean(path)
            with aside.open("wb") as out:
                out.write(self._bytes(fingerprint))
                out.flush()
                os.fsync(out.fileno())
            aside.replace(path)
            _sync(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise ProfileError(f"the learned profile cannot be written to {path}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: Path, fingerprint: str, shape: tuple[int, int]) -> "Profile":
        """Read a file and check all of it.

        Args:
            path: where.
            fingerprint: of the model whose experts are to be placed.
            shape: its L and E.

        Raises:
            NoProfileError: there is none.
            ProfileError: it is torn or damaged, or of another model.
        """
        most = FIXED.size + LARGEST_HEADER + 8 * math.prod(shape) + DIGEST
        try:
            if path.exists() and not path.is_file():
                raise ProfileError(f"the learned profile {path} is not used: it is no regular file")
            with path.open("rb") as file:
                data = file.read(most + 1)
        except FileNotFoundError as error:
            raise NoProfileError(f"there is no learned profile at {path} yet") from error
        except OSError as error:
            raise ProfileError(f"the learned profile {path} cannot be read: {error.strerror or error}") from error
        try:
            return cls._parse(data, fingerprint, shape)
        except ProfileError as error:
            raise ProfileError(f"the learned profile {path} is not used: {error}") from error

    def _bytes(self, fingerprint: str) -> bytes:
        layers, experts = self.quick.shape
        header = json.dumps({"fingerprint": fingerprint, "layers": layers, "experts": experts}).encode()
        tables = b"".join(np.ascontiguousarray(table, "<f4").tobytes() for table in (self.quick, self.slow))
        data = FIXED.pack(MAGIC, VERSION, len(header)) + header + tables
        return data + blake2b(data, digest_size=DIGEST).digest()

    @classmethod
    def _parse(cls, data: bytes, fingerprint: str, shape: tuple[int, int]) -> "Profile":
        if len(data) < FIXED.size or not data.startswith(MAGIC):
            raise ProfileError("it is no profile of experts")
        _, version, length = FIXED.unpack_from(data)
        if version != VERSION:
            raise ProfileError(f"its form is {version}, and {VERSION} was expected")
        if blake2b(data[:-DIGEST], digest_size=DIGEST).digest() != data[-DIGEST:]:
            raise ProfileError("its checksum does not fit its contents; it is cut off or damaged")
        try:
            header = json.loads(data[FIXED.size : FIXED.size + min(length, LARGEST_HEADER)])
            found, layers, experts = header["fingerprint"], header["layers"], header["experts"]
        except (ValueError, KeyError, TypeError) as error:
            raise ProfileError(f"its header cannot be read: {error}") from error
        if found != fingerprint:
            raise ProfileError("it belongs to another model")
        if (layers, experts) != shape or len(data) != FIXED.size + length + 8 * math.prod(shape) + DIGEST:
            raise ProfileError(f"it is of {layers} layers with {experts} experts, not of {shape[0]} with {shape[1]}")
        tables = np.frombuffer(data, "<f4", 2 * math.prod(shape), FIXED.size + length).reshape(2, *shape)
        if not (np.isfinite(tables).all() and (tables >= 0).all()):
            raise ProfileError("it holds counts that are no counts")
        return cls(tables[0].astype(np.float64), tables[1].astype(np.float64))


def _clean(path: Path) -> None:
    """Delete what writers left that were ended."""
    for old in path.parent.glob(f"{path.name}.*{UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > ABANDONED:
                old.unlink()


def _sync(folder: Path) -> None:
    """Make a renaming durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
