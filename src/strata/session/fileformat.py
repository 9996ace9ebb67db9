"""One part of a conversation as bytes: a span's rows, or a checkpoint.

    0    8   magic "StrataKV"
    8    4   format version                                  all numbers little-endian
    12   4   h, bytes of the header
    16   8   p, bytes of the payload
    24   h   header: JSON, padded with blanks so that the payload begins at a multiple of 4096, for direct reads
    ..   32  BLAKE2b of everything before: the header can be trusted without reading the payload
    ..   p   payload: tensors one after the other, each at a multiple of 64
    ..   32  BLAKE2b of the header's BLAKE2b and of that of each 4 MiB of the payload (`strata.session.checksum`)

A file says all that is needed to know what it is for: the fingerprint of model and settings, and the whole beginning of
the conversation up to its end, so that no file depends on another file to be understood.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strata.errors import StrataError
from strata.model.memory import ALIGN, PLAIN, Memory, laid, layout
from strata.session.checksum import DIGEST, Sums, sealed
from strata.session.reading import BLOCK, Hands, Reading

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"StrataKV"
VERSION = 3
FIXED = struct.Struct("<8sIIQ")
LARGEST_HEADER = 256 << 20
"""Bytes; a million tokens need about ten million."""

SHORTER = "it became shorter while it was read; it is cut off"

DTYPES = {
    str(t).removeprefix("torch."): t for t in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
}


class StoredFileError(StrataError):
    """A file of a stored conversation cannot be used; the text is the reason."""


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
    """A file's bytes up to the payload."""
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
    text += b" " * (-(FIXED.size + len(text) + DIGEST) % BLOCK)
    begin = FIXED.pack(MAGIC, VERSION, len(text), _payload(header)) + text
    return begin + blake2b(begin, digest_size=DIGEST).digest()


def pieces(header: Header, tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A whole file in pieces, without a second copy of the tensors."""
    begin = front(header)
    sums = Sums()
    yield begin
    for name, _, _ in header.tensors:
        raw = tensors[name].contiguous().flatten().view(torch.uint8).numpy().data
        padding = bytes(-raw.nbytes % ALIGN)
        sums.update(raw)
        sums.update(padding)
        yield raw
        yield padding
    yield sums.digest(begin[-DIGEST:])


def size_of(header: Header, front_bytes: int | None = None) -> int:
    """Bytes of the whole file; those up to the payload need not be made again where their number is known."""
    return (len(front(header)) if front_bytes is None else front_bytes) + _payload(header) + DIGEST


def read_header(path: "Path") -> tuple[Header, bytes]:
    """The header of a file and its digest, checked; the payload's size is checked, its bytes are not.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        begin = file.read(FIXED.size)
        length = _check_fixed(begin, path.stat().st_size)
        return _parse_header(begin + file.read(length + DIGEST))


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
        StoredFileError: it is no such file, is cut off, or is damaged.
        OSError: it cannot be read.
    """

    def __init__(
        self, path: "Path", memory: Memory, hands: Hands | None = None, known: tuple[Header, bytes] | None = None
    ) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = file.read(FIXED.size)
            begin += file.read(_check_fixed(begin, size) + DIGEST)
        same = known is not None and begin[-DIGEST:] == known[1] == _digest(begin)
        self.header, self.digest = known if known is not None and same else _parse_header(begin)
        try:
            self._reading = Reading(path, len(begin), size, memory, hands)
        except EOFError as error:
            raise StoredFileError(SHORTER) from error

    def tensors(self) -> dict[str, Tensor]:
        """Wait for it.

        Raises:
            StoredFileError: it is damaged, or was cut off meanwhile.
            OSError: it cannot be read.
        """
        try:
            payload, sums, seal = self._reading.finish()
        except EOFError as error:
            raise StoredFileError(SHORTER) from error
        if sealed(self.digest, sums) != seal:
            raise StoredFileError("its checksum does not fit its contents; it is damaged")
        return laid(payload, {name: (DTYPES[dtype], shape) for name, dtype, shape in self.header.tensors})


def read(path: "Path", memory: Memory = PLAIN) -> tuple[Header, bytes, dict[str, Tensor]]:
    """A whole file, checked to the last byte: header, the header's digest, tensors.

    Raises:
        StoredFileError: it is no such file, is cut off, or is damaged.
        OSError: it cannot be read.
    """
    coming = Coming(path, memory)
    return coming.header, coming.digest, coming.tensors()


def _check_fixed(begin: bytes, size: int) -> int:
    """The header's length, if the file has the size it says."""
    if len(begin) < FIXED.size:
        raise StoredFileError(f"it has {size} bytes, fewer than any such file; it is cut off")
    magic, version, length, payload = FIXED.unpack(begin)
    if magic != MAGIC:
        raise StoredFileError(f"it begins with {magic!r}, not {MAGIC!r}; it is no stored conversation")
    if version != VERSION:
        raise StoredFileError(f"it has format version {version}; this program reads version {VERSION}")
    expected = FIXED.size + length + DIGEST + payload + DIGEST
    if length > LARGEST_HEADER or size != expected:
        raise StoredFileError(f"it has {size} bytes, but should have {expected}; it is cut off or damaged")
    return int(length)


def _parse_header(begin: bytes) -> tuple[Header, bytes]:
    digest = begin[-DIGEST:]
    if _digest(begin) != digest:
        raise StoredFileError("the checksum of its header does not fit; it is damaged")
    try:
        fields: dict[str, Any] = json.loads(begin[FIXED.size : -DIGEST])
        tensors = tuple((str(n), str(d), tuple(int(x) for x in s)) for n, d, s in fields.pop("tensors"))
        header = Header(symbols=tuple(map(int, fields.pop("symbols"))), tensors=tensors, **fields)
        payload = _payload(header)
    except (ValueError, KeyError, TypeError) as error:
        raise StoredFileError(f"its header is not understood: {error}") from error
    boundaries = 0 <= header.start < header.end if header.kind == "rows" else 0 < header.start == header.end
    if payload != FIXED.unpack(begin[: FIXED.size])[3] or header.kind not in {"rows", "checkpoint"} or not boundaries:
        raise StoredFileError("its header contradicts itself; it is damaged")
    return header, digest


def _digest(begin: bytes) -> bytes:
    """What the last bytes before the payload should be."""
    return blake2b(begin[:-DIGEST], digest_size=DIGEST).digest()


def _payload(header: Header) -> int:
    """Bytes of the payload."""
    return layout((DTYPES[dtype], shape) for _, dtype, shape in header.tensors)[1]
