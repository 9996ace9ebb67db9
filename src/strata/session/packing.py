"""A piece of a payload as its file has it: the top bytes of its numbers packed, all others as they are.

The top byte of a number holds its sign and its exponent or most of it, and numbers that belong together are of about
one size: of keys and values in bfloat16 a third of these bytes is left. The bytes below are as good as random.

A packed piece of numbers of w bytes is their lowest bytes, one after the other, and so on up to the last but one; the
top ones as a zstd frame; zeros up to a multiple of 4096. Its sum is of its bytes before packing, and behind them of the
frame and the zeros: so all that is read is summed up, and what unpacking made of it, too.
"""

import logging
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from strata.session.checksum import summed
from strata.session.errors import StoredFileError
from strata.session.pieces import WIDTHS, Piece
from strata.session.zstd import zstd

log = logging.getLogger("strata.session")

Bytes = NDArray[np.uint8]

WORTH = 32
"""A piece is packed if that saves one part in so many of it."""

LEVEL, HASH = 1, 6
"""zstd's fastest level that packs at all, with the smallest table for matches, for there are none to find: of normal
numbers in bfloat16 0.335 of the top bytes is left, packed at 0.9 GB/s and unpacked at 2.2. With the level's own table
matches by chance are taken, which gives 0.366, 0.3 GB/s and 1.3."""

WINDOW = 22
"""Two's logarithm of the bytes that a frame may have unpacking keep at hand."""


def available() -> bool:
    """Whether pieces can be packed and unpacked here."""
    return zstd is not None


def pack(contents: Bytes, width: int, place: Piece, room: Bytes) -> tuple[Piece, Bytes]:
    """A piece as it is to be stored.

    Args:
        contents: uint8 [place.size].
        width: bytes of most of its numbers; 1 if those are none whose top bytes are alike.
        place: where it will lie.
        room: uint8, as long at least; what is to be stored may lie there.
    """
    if width in WIDTHS and len(contents) % width == 0 and _can_pack():
        options = {zstd.CompressionParameter.compression_level: LEVEL, zstd.CompressionParameter.hash_log: HASH}
        frame = zstd.compress(np.ascontiguousarray(contents[width - 1 :: width]).data, options=options)
        piece = replace(place, width=width, packed=len(frame))
        if piece.stored <= piece.size - piece.size // WORTH and piece.packed < piece.plane:
            stored = room[: piece.stored]
            for i, plane in enumerate(_planes(stored, piece)):
                plane[:] = contents[i::width]
            stored[piece.rest : piece.rest + piece.packed] = np.frombuffer(frame, np.uint8)
            stored[piece.rest + piece.packed :] = 0
            return replace(piece, sum=_sum(piece, stored, contents)), stored
    return replace(place, sum=_sum(place, contents, contents)), contents


def unpack(piece: Piece, stored: Bytes, contents: Bytes) -> None:
    """Make a piece's bytes of what its file has, and check them.

    Args:
        piece: which.
        stored: uint8 [piece.stored]; of one that is stored as it is, the contents.
        contents: uint8 [piece.size], where they are to be.

    Raises:
        StoredFileError: they are not what was written.
    """
    if not piece.whole:
        top = _unpacked(stored[piece.rest : piece.rest + piece.packed], piece.plane)
        for i, plane in enumerate(_planes(stored, piece)):
            contents[i :: piece.width] = plane
        contents[piece.width - 1 :: piece.width] = np.frombuffer(top, np.uint8)
    if _sum(piece, stored, contents) != piece.sum:
        raise StoredFileError("its checksum does not fit its contents; it is damaged")


def _unpacked(frame: Bytes, size: int) -> bytes:
    """What a frame holds, which is no more than so many bytes whatever it says.

    Raises:
        StoredFileError: it is no frame of so many.
    """
    unpacker = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW})
    try:
        found: bytes = unpacker.decompress(frame.data, max_length=size)
    except zstd.ZstdError as error:
        raise StoredFileError(f"a piece of it cannot be unpacked ({error}); it is damaged") from error
    if len(found) != size or not unpacker.eof or unpacker.unused_data:
        raise StoredFileError(f"a piece of it does not unpack to {size} bytes; it is damaged")
    return found


def _sum(piece: Piece, stored: Bytes, contents: Bytes) -> bytes:
    return summed(contents.data, *(() if piece.whole else (stored[piece.rest :].data,)))


def _planes(stored: Bytes, piece: Piece) -> Bytes:
    """All planes but the top one, uint8 [width - 1, numbers]."""
    return stored[: piece.rest].reshape(piece.width - 1, piece.plane)


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
