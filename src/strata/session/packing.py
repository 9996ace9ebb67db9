"""A piece of a payload as its file has it: the top bytes of its numbers packed, all others as they are.

The top byte of a number holds its sign and its exponent or most of it, and numbers that belong together are of about
one size: of keys and values in bfloat16 a third of these bytes is left. The bytes below are as good as random.

A packed piece of numbers of w bytes is their lowest bytes, one after the other, and so on up to the last but one; the
top ones as a zstd frame; zeros up to a multiple of 4096. Its sum is of all of these, so what is read is summed up, less
than was packed, and nothing damaged gets to be unpacked. What unpacking makes of it is checked by the frame's own
checksum, so each frame must have one.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from strata.session import planes
from strata.session.checksum import crc
from strata.session.errors import StoredFileError
from strata.session.pieces import WIDTHS, Piece
from strata.session.planes import Bytes
from strata.session.zstd import zstd

log = logging.getLogger("strata.session")

WORTH = 32
"""A piece is packed if that saves one part in so many of it."""

LEVEL, HASH = 1, 6
"""zstd's fastest level that packs at all, with the smallest table for matches, for there are none to find: of normal
numbers in bfloat16 0.335 of the top bytes is left, packed at 0.9 GB/s and unpacked at 2.2; the frame's checksum
makes it 0.85 and 1.9. With the level's own table matches by chance are taken: 0.366, 0.3 GB/s and 1.3."""

WINDOW = 17
"""Two's logarithm of the bytes that a frame may have unpacking keep at hand: as many as a block of zstd's has."""

PART = 256 << 10
"""Bytes that are unpacked at a time. A plane of 2 MiB at once is memory that glibc may take from the system for each
piece and give back: 1,190 page faults a piece and 1.6 times the time. So small a part stays with its thread and in the
processor's cache, and holds others up less: zstd's module copies what came with the interpreter's lock."""

MAGIC, CHECKED = b"\x28\xb5\x2f\xfd", 1 << 2
"""What a frame begins with, and the bit of the next byte that says it ends with a checksum: XXH64 of what it holds, of
which it has the lower half (RFC 8878, 3.1.1)."""


def available() -> bool:
    """Whether pieces can be packed and unpacked here."""
    return zstd is not None


def prepare() -> None:
    """Have all there is to compile compiled, if pieces can be packed here. Not in the middle of an answer."""
    if available():
        planes.prepare()


def pack(contents: Bytes, width: int, place: Piece, room: Bytes) -> tuple[Piece, Bytes]:
    """A piece as it is to be stored.

    Args:
        contents: uint8 [place.size].
        width: bytes of most of its numbers; 1 if those are none whose top bytes are alike.
        place: where it will lie.
        room: uint8, as long at least; what is to be stored may lie there.
    """
    if width in WIDTHS and len(contents) % width == 0 and _can_pack():
        piece = replace(place, width=width)
        planes.split(contents, width, room[: piece.size])
        frame = _packed(room[piece.rest : piece.size])
        piece = replace(piece, packed=len(frame))
        if piece.stored <= piece.size - piece.size // WORTH and piece.packed < piece.plane:
            stored = room[: piece.stored]
            stored[piece.rest : piece.rest + piece.packed] = np.frombuffer(frame, np.uint8)
            stored[piece.rest + piece.packed :] = 0
            return replace(piece, sum=crc(stored.data)), stored
    return replace(place, sum=crc(contents.data)), contents


def unpack(piece: Piece, stored: Bytes, contents: Bytes) -> None:
    """Check what a file has of a piece, and make the piece's bytes of it.

    Args:
        piece: which.
        stored: uint8 [piece.stored]; of one that is stored as it is, the contents.
        contents: uint8 [piece.size], where they are to be.

    Raises:
        StoredFileError: they are not what was written, and the contents are worth nothing.
    """
    if crc(stored.data) != piece.sum:
        raise StoredFileError("its checksum does not fit its contents; it is damaged")
    if not piece.whole:
        first = 0
        for top in _unpacked(stored[piece.rest : piece.rest + piece.packed], piece.plane):
            planes.join(stored[: piece.rest], top, first, piece.width, contents)
            first += len(top)


def _packed(top: Bytes) -> bytes:
    """A frame of the top bytes, with the checksum of them."""
    options = {
        zstd.CompressionParameter.compression_level: LEVEL,
        zstd.CompressionParameter.hash_log: HASH,
        zstd.CompressionParameter.window_log: WINDOW,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    frame: bytes = zstd.compress(top.data, options=options)
    return frame


def _unpacked(frame: Bytes, size: int) -> Iterator[Bytes]:
    """What a frame holds, part by part, which is no more than so many bytes whatever it says.

    Raises:
        StoredFileError: it is no frame of so many, or says nothing of its checksum, which then would not be looked at.
    """
    begin = frame[: len(MAGIC) + 1].tobytes()
    if begin[:-1] != MAGIC or not begin[-1] & CHECKED:
        raise StoredFileError("a piece of it is no frame with a checksum and cannot be unpacked; it is damaged")
    unpacker = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW})
    left, more = size, frame
    while left and not unpacker.eof:
        try:
            found = unpacker.decompress(more.data, max_length=min(PART, left))
        except zstd.ZstdError as error:
            raise StoredFileError(f"a piece of it cannot be unpacked ({error}); it is damaged") from error
        if not found:  # the frame is cut off
            break
        yield np.frombuffer(found, np.uint8)
        left, more = left - len(found), frame[:0]
    if left or not unpacker.eof or unpacker.unused_data:
        raise StoredFileError(f"a piece of it does not unpack to {size} bytes; it is damaged")


def _can_pack() -> bool:
    if not available():
        _tell()
    return available()


@cache
def _tell() -> None:
    log.warning(
        "conversations are stored as they are, which takes up to half as much room again: this Python has no zstd; "
        "install backports.zstd"
    )
