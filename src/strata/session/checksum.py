"""A checksum of long contents that several threads can take: BLAKE2b of the BLAKE2b sums of their pieces.

One thread sums up about a gigabyte a second, which for a long conversation is longer than its disk takes.
"""

from hashlib import blake2b

DIGEST = 32

PIECE = 4 << 20
"""Bytes; part of the format."""


class Sums:
    """Takes contents in parts of any size."""

    def __init__(self) -> None:
        self._whole: list[bytes] = []
        self._piece = blake2b(digest_size=DIGEST)
        self._left = PIECE

    def update(self, data: bytes | memoryview) -> None:
        """What comes next."""
        view = memoryview(data).cast("B")
        while len(view):
            part, view = view[: self._left], view[self._left :]
            self._piece.update(part)
            self._left -= len(part)
            if not self._left:
                self._end()

    def digest(self, before: bytes) -> bytes:
        """Of all of it, and of a digest of what comes before; nothing may come any more."""
        if self._left < PIECE:
            self._end()
        return sealed(before, self._whole)

    def _end(self) -> None:
        self._whole.append(self._piece.digest())
        self._piece, self._left = blake2b(digest_size=DIGEST), PIECE


def sealed(before: bytes, sums: list[bytes]) -> bytes:
    """The digest of pieces whose digests are known."""
    return blake2b(before + b"".join(sums), digest_size=DIGEST).digest()


def summed(piece: memoryview) -> bytes:
    """The digest of one piece."""
    return blake2b(piece, digest_size=DIGEST).digest()
