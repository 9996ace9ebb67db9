"""One part of a conversation as bytes: a span's rows, or a checkpoint.

    0    8   magic "StrataKV"
    8    4   format version                                  all numbers little-endian
    12   4   h, bytes of the header
    16   8   p, bytes of the payload
    24   h   header: JSON, padded with blanks so that the payload begins at a multiple of 4096, for direct reads
    ..   32  BLAKE2b of everything before
    ..   t   table of the payload's pieces, of 4 MiB each but the last (`strata.session.pieces`)
    ..   32  BLAKE2b of the 32 bytes before the table, and of the table
    ..   ..  the pieces, packed or as they are (`strata.session.packing`), each at a multiple of 4096

Together the pieces are the payload: tensors one after the other, each at a multiple of 64. What stands before them is
trusted without reading them, and says how long the file is. It is written last, when it is known how long they became.

A file says all that is needed to know what it is for: the fingerprint of model and settings, and the whole beginning of
the conversation up to its end, so that no file depends on another file to be understood.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from strata.model.memory import ALIGN, PLAIN, Memory, laid, layout
from strata.session import checksum, packing
from strata.session.checksum import DIGEST, summed
from strata.session.errors import StoredFileError
from strata.session.pieces import BLOCK, Piece, pieces_of, table, table_bytes
from strata.session.planes import Bytes
from strata.session.reading import Hands, Reading

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"StrataKV"
VERSION = 6
FIXED = struct.Struct("<8sIIQ")
LARGEST_HEADER = 256 << 20
"""Bytes; a million tokens need about ten million."""

SHORTER = "it became shorter while it was read; it is cut off"

DTYPES = {
    str(t).removeprefix("torch."): t for t in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
}

NUMBERS = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2}
"""Bytes of those whose top bytes are alike, and worth packing."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds.

    Attributes:
        fingerprint: of model, settings and numerics; a file of another one is not for us.
        kind: "rows" or "checkpoint".
        salt: part of the key besides the symbols.
        symbols: one a token, from the conversation's first to the end of this part.
        start: first token of the rows; equal to `end` for a checkpoint.
        ratio: tokens of an indexer block; 0 for a checkpoint.
        marked: a boundary worth keeping when checkpoints are thinned out.
        tensors: name, type and shape, in the order of the payload.
    """

    fingerprint: str
    kind: str
    salt: str
    symbols: tuple[int, ...]
    start: int
    ratio: int
    marked: bool
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]

    @property
    def end(self) -> int:
        """Boundary behind the last token."""
        return len(self.symbols)


def describe(tensors: Mapping[str, Tensor]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """The `tensors` of a header."""
    return tuple((name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in tensors.items())


def front(header: Header) -> bytes:
    """A file's bytes up to the table."""
    text = json.dumps(
        {
            "fingerprint": header.fingerprint,
            "kind": header.kind,
            "salt": header.salt,
            "symbols": header.symbols,
            "start": header.start,
            "ratio": header.ratio,
            "marked": header.marked,
            "tensors": header.tensors,
        }
    ).encode()
    payload = _payload(header)
    text += b" " * (-(FIXED.size + len(text) + DIGEST + table_bytes(payload) + DIGEST) % BLOCK)
    begin = FIXED.pack(MAGIC, VERSION, len(text), payload) + text
    return begin + summed(begin)


def write(out: BinaryIO, header: Header, tensors: Mapping[str, Tensor]) -> int:
    """Write a whole file, without a second copy of the tensors; returns its bytes.

    Raises:
        OSError: it cannot be written.
    """
    begin, found = front(header), list[Piece]()
    first, place = 0, len(begin) + table_bytes(_payload(header)) + DIGEST
    out.seek(place)
    room = np.empty(checksum.PIECE, np.uint8)
    for contents, width in _contents(header, tensors):
        piece, stored = packing.pack(contents, width, Piece(first, len(contents), place), room)
        out.write(stored.data)
        found.append(piece)
        first, place = first + piece.size, place + piece.stored
    entries = table(found)
    out.seek(0)
    out.write(begin + entries + summed(begin[-DIGEST:], entries))
    return place


def size_of(header: Header, front_bytes: int | None = None) -> int:
    """Bytes of the whole file at most; those up to the table need not be made again where their number is known."""
    begin = len(front(header)) if front_bytes is None else front_bytes
    return begin + table_bytes(_payload(header)) + DIGEST + _payload(header)


def read_header(path: "Path") -> tuple[Header, bytes]:
    """The header of a file and its digest, checked; that all of its pieces are there is checked, their bytes are not.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged; or it cannot be unpacked here.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return _before(file, os.fstat(file.fileno()).st_size)[:2]


class Coming:
    """A file that is being read, to be checked to the last byte before anything of it is used.

    Args:
        path: of the file.
        memory: where its tensors are to lie.
        hands: who reads; None reads at once.
        known: its header and the header's digest, if they are known: then it need not be understood again.

    Attributes:
        header: what it holds.
        digest: of its header.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged; or it cannot be unpacked here.
        OSError: it cannot be read.
    """

    def __init__(
        self, path: "Path", memory: Memory, hands: Hands | None = None, known: tuple[Header, bytes] | None = None
    ) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.header, self.digest, pieces = _before(file, size, known)
        with _whole():
            self._reading = Reading(path, size, pieces, memory, hands)

    def promised(self) -> dict[str, Tensor]:
        """The tensors; `wait` says when each is there."""
        return laid(self._reading.payload, _kinds(self.header))

    def wait(self, names: Collection[str]) -> None:
        """Return when some tensors are there and checked, those that the file has of them.

        Raises:
            StoredFileError: it is damaged, or was cut off meanwhile.
            OSError: it cannot be read.
        """
        kinds = _kinds(self.header)
        places = [*layout(kinds.values())[0], _payload(self.header)]
        with _whole():
            for name, first, end in zip(kinds, places, places[1:], strict=False):
                if name in names:
                    self._reading.wait(first, end)

    def tensors(self) -> dict[str, Tensor]:
        """Wait for all of it.

        Raises:
            StoredFileError: it is damaged, or was cut off meanwhile.
            OSError: it cannot be read.
        """
        with _whole():
            payload = self._reading.finish()
        return laid(payload, _kinds(self.header))


def read(path: "Path", memory: Memory = PLAIN) -> tuple[Header, bytes, dict[str, Tensor]]:
    """A whole file, checked to the last byte: header, the header's digest, tensors.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged; or it cannot be unpacked here.
        OSError: it cannot be read.
    """
    coming = Coming(path, memory)
    return coming.header, coming.digest, coming.tensors()


def _contents(header: Header, tensors: Mapping[str, Tensor]) -> Iterator[tuple[Bytes, int]]:
    """The payload's pieces, each until the next one is asked for, and how many bytes most of its numbers have."""
    piece = np.empty(checksum.PIECE, np.uint8)
    filled, widths = 0, Counter[int]()
    for name, _, _ in header.tensors:
        tensor = tensors[name]
        if not tensor.numel():
            continue
        raw = tensor.contiguous().flatten().view(torch.uint8).numpy()
        for part in (raw, np.zeros(-len(raw) % ALIGN, np.uint8)):
            done = 0
            while done < len(part):
                count = min(len(part) - done, len(piece) - filled)
                piece[filled : filled + count] = part[done : done + count]
                widths[NUMBERS.get(tensor.dtype, 1)] += count
                done, filled = done + count, filled + count
                if filled == len(piece):
                    yield piece, max(widths, key=widths.__getitem__)
                    filled, widths = 0, Counter()
    if filled:
        yield piece[:filled], max(widths, key=widths.__getitem__)


def _before(file: BinaryIO, size: int, known: tuple[Header, bytes] | None = None) -> tuple[Header, bytes, list[Piece]]:
    """What stands before the pieces of a file of so many bytes, checked: the header, its digest, and the pieces.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged; or it cannot be unpacked here.
        OSError: it cannot be read.
    """
    begin = file.read(FIXED.size)
    length, entries = _check_fixed(begin, size)
    begin += file.read(length + DIGEST)
    same = known is not None and begin[-DIGEST:] == known[1] == _digest(begin)
    header, digest = known if known is not None and same else _parse_header(begin)
    read = file.read(entries + DIGEST)
    if summed(digest, read[:-DIGEST]) != read[-DIGEST:]:
        raise StoredFileError("the checksum of its table does not fit; it is damaged")
    pieces = pieces_of(read[:-DIGEST], _payload(header), len(begin) + len(read))
    expected = len(begin) + len(read) + sum(piece.stored for piece in pieces)
    if size != expected:
        raise StoredFileError(f"it has {size} bytes, but should have {expected}; it is cut off or damaged")
    if not packing.available() and not all(piece.whole for piece in pieces):
        raise StoredFileError("it is packed, and this Python has no zstd; install backports.zstd")
    return header, digest, pieces


def _check_fixed(begin: bytes, size: int) -> tuple[int, int]:
    """Bytes of the header and of the table, if a file of so many has room for them."""
    if len(begin) < FIXED.size:
        raise StoredFileError(f"it has {size} bytes, fewer than any such file; it is cut off")
    magic, version, length, payload = FIXED.unpack(begin)
    if magic != MAGIC:
        raise StoredFileError(f"it begins with {magic!r}, not {MAGIC!r}; it is no stored conversation")
    if version != VERSION:
        raise StoredFileError(f"it has format version {version}; this program reads version {VERSION}")
    entries = table_bytes(payload)
    least = FIXED.size + length + DIGEST + entries + DIGEST
    if length > LARGEST_HEADER or size < least:
        raise StoredFileError(f"it has {size} bytes, but should have {least} at least; it is cut off or damaged")
    return length, entries


def _parse_header(begin: bytes) -> tuple[Header, bytes]:
    digest = begin[-DIGEST:]
    if _digest(begin) != digest:
        raise StoredFileError("the checksum of its header does not fit; it is damaged")
    try:
        fields: dict[str, Any] = json.loads(begin[FIXED.size : -DIGEST])
        tensors = tuple((str(n), str(d), tuple(int(x) for x in s)) for n, d, s in fields.pop("tensors"))
        header = Header(symbols=tuple(map(int, fields.pop("symbols"))), tensors=tensors, **fields)
        sizes = [size for _, _, shape in tensors for size in shape]
        boundaries = 0 <= header.start < header.end if header.kind == "rows" else 0 < header.start == header.end
        fits = _payload(header) == FIXED.unpack(begin[: FIXED.size])[3] and min(sizes, default=0) >= 0
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StoredFileError(f"its header is not understood: {error}") from error
    if header.kind not in {"rows", "checkpoint"} or not boundaries or not fits:
        raise StoredFileError("its header contradicts itself; it is damaged")
    return header, digest


def _digest(begin: bytes) -> bytes:
    """What the last bytes before the table should be."""
    return summed(begin[:-DIGEST])


def _kinds(header: Header) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Types and shapes of the tensors."""
    return {name: (DTYPES[dtype], shape) for name, dtype, shape in header.tensors}


def _payload(header: Header) -> int:
    """Bytes of the payload."""
    return layout((DTYPES[dtype], shape) for _, dtype, shape in header.tensors)[1]


@contextmanager
def _whole() -> Iterator[None]:
    """A file that ends too early has become shorter."""
    try:
        yield
    except EOFError as error:
        raise StoredFileError(SHORTER) from error
