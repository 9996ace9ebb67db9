"""Checksums: of what stands before a file's pieces, and of pieces, which several threads sum up at once.

Who has the first of these knows which file it is. Those of pieces are against damage alone: CRC-32 finds every one that
lies within 32 bits, and all but one of four billion others, at five times the speed of a BLAKE2b (2.3 GB/s and 0.4 on
one processor of a Xeon, 4.3 and 0.9 on another machine's), which took two thirds of the time that unpacking took.
"""

import zlib
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


def crc(contents: bytes | memoryview) -> int:
    """The CRC-32 of some bytes (ISO 3309, as zlib and gzip have it). The interpreter goes on meanwhile."""
    return zlib.crc32(contents)
