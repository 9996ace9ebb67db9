"""A checksum of long contents that several threads can take: each piece has its own.

One thread sums up about a gigabyte a second, which for a long conversation is longer than its disk takes.
"""

from hashlib import blake2b

DIGEST = 32

PIECE = 4 << 20
"""Bytes; part of the format. A multiple of the blocks of direct reads."""


def summed(*parts: bytes | memoryview) -> bytes:
    """The BLAKE2b of bytes that follow each other."""
    found = blake2b(digest_size=DIGEST)
    for part in parts:
        found.update(part)
    return found.digest()
