"""The table of a payload's pieces: how a file has each, and the sum of each.

    0    4   bytes of a number, 2 or 4; 1 for a piece that is stored as it is      all numbers little-endian
    4    4   bytes of the frame that the top bytes are packed to; 0 for a piece that is stored as it is
    8    4   CRC-32 of what the file has of the piece

Where a piece lies and how long it is there follows from these, so no entry can make anybody read or take more memory
than the payload is long.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from strata.session import checksum
from strata.session.errors import StoredFileError

BLOCK = 4096
"""Bytes that places, lengths and addresses of direct reads are multiples of."""

ENTRY = struct.Struct("<III")

WIDTHS = 2, 4
"""Bytes of the numbers whose top bytes are packed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a payload, and where and how a file has it.

    Attributes:
        first: its first byte in the payload.
        size: its bytes there.
        place: its first byte in the file.
        width: bytes of a number; 1 if it is stored as it is.
        packed: bytes of the frame.
        sum: CRC-32 of its bytes in the file.
    """

    first: int
    size: int
    place: int
    width: int = 1
    packed: int = 0
    sum: int = 0

    @property
    def whole(self) -> bool:
        """Whether it is stored as it is."""
        return self.width == 1

    @property
    def plane(self) -> int:
        """Numbers: bytes of a plane, which has one byte of each."""
        return self.size // self.width

    @property
    def rest(self) -> int:
        """Bytes of all planes but the top one, which lie before the frame."""
        return self.size - self.plane

    @property
    def stored(self) -> int:
        """Bytes in the file."""
        return self.size if self.whole else -(-(self.rest + self.packed) // BLOCK) * BLOCK


def table_bytes(payload: int) -> int:
    """Bytes of the table for a payload of so many."""
    return -(-payload // checksum.PIECE) * ENTRY.size


def table(pieces: Sequence[Piece]) -> bytes:
    """The table of a payload's pieces, in order."""
    return b"".join(ENTRY.pack(piece.width, piece.packed, piece.sum) for piece in pieces)


def pieces_of(entries: bytes, payload: int, place: int) -> list[Piece]:
    """The pieces that a table tells of.

    Args:
        entries: the table, of `table_bytes`.
        payload: bytes of the payload.
        place: the first piece's first byte in the file.

    Raises:
        StoredFileError: it makes no sense.
    """
    found = []
    for i, (width, packed, crc) in enumerate(ENTRY.iter_unpack(entries)):
        first = i * checksum.PIECE
        piece = Piece(first, min(checksum.PIECE, payload - first), place, width, packed, crc)
        if (width, packed) != (1, 0) and (
            width not in WIDTHS or piece.size % width or not 0 < packed < piece.plane or piece.stored > piece.size
        ):
            raise StoredFileError(
                f"its table has a piece of numbers of {width} bytes, packed to {packed}; there is no such piece"
            )
        found.append(piece)
        place += piece.stored
    return found
