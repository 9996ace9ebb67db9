"""Recorded routing in a file: what a real model's rows visited, small enough to keep hours of it.

    0    8   magic "StrataRT"
    8    4   format version                                  all numbers little-endian
    12   4   h, bytes of the header
    16   h   header: JSON with layers, experts, topk, and what the writer had to say
    ..       blocks: length and CRC-32 of what follows, then zlib of
             rows, then of each row: conversation uint32, window uint32, kept uint8; then its experts

Experts are whole numbers of 16 bits in the order of rows, layers and places, sorted within a layer and stored as
differences, which zlib takes to about 1.1 bytes a visit. A block holds whole windows, 256 rows or a few more. A
recording that was ended in the middle of a block is good up to that block.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from strata.errors import StrataError
from strata.lab.routing.generator import Rows

MAGIC = b"StrataRT"
VERSION = 1
FIXED = struct.Struct("<8sII")
BLOCK = struct.Struct("<II")
COUNT = struct.Struct("<I")
ROW = np.dtype([("conversation", "<u4"), ("window", "<u4"), ("kept", "u1")])
BLOCK_ROWS = 256
LARGEST = 64 << 20
"""Bytes of a block, packed or not."""


class TraceError(StrataError):
    """A file of recorded routing cannot be used; the text is the reason."""


class Recorded(NamedTuple):
    """Rows of one window.

    Attributes:
        conversation: a number for each row, [T].
        window: a number for all of them.
        kept: bool [T]; False for a row behind a guess that was refused.
        rows: int16 [T, L, topk]; experts rise within a layer.
    """

    conversation: NDArray[np.uint32]
    window: int
    kept: NDArray[np.bool_]
    rows: Rows


class TraceWriter:
    """Writes a recording, block by block."""

    def __init__(self, path: Path, layers: int, experts: int, topk: int, **about: Any) -> None:
        """Begin a file.

        Args:
            path: where; what is there is replaced.
            layers: L.
            experts: E.
            topk: experts a row visits in a layer.
            about: whatever should be known of the recording, as JSON values.

        Raises:
            TraceError: the file cannot be written.
        """
        self._shape = (layers, topk)
        self._experts = experts
        self._path = path
        self._facts: list[NDArray[np.void]] = []
        self._rows: list[NDArray[np.uint16]] = []
        self._held = 0
        header = json.dumps({**about, "layers": layers, "experts": experts, "topk": topk}).encode()
        try:
            self._file: BinaryIO = path.open("wb")
            self._file.write(FIXED.pack(MAGIC, VERSION, len(header)) + header)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def window(
        self,
        number: int,
        rows: NDArray[np.integer],
        conversation: int | NDArray[np.integer] = 0,
        kept: int | NDArray[np.bool_] | None = None,
    ) -> None:
        """Add one window.

        Args:
            number: which it is; rows of one window share it.
            rows: [T, L, topk].
            conversation: whose rows they are.
            kept: how many of them were committed, or which, bool [T]; all unless said.

        Raises:
            TraceError: the rows do not fit the recording, or cannot be written.
        """
        if rows.shape[1:] != self._shape or (rows.size and (rows.min() < 0 or rows.max() >= self._experts)):
            raise TraceError(
                f"rows of shape {rows.shape} with experts up to {rows.max(initial=0)} do not fit a recording of "
                f"{self._shape[0]} layers, {self._experts} experts and {self._shape[1]} visits"
            )
        facts = np.zeros(len(rows), ROW)
        facts["conversation"], facts["window"] = conversation, number
        facts["kept"] = (
            kept if isinstance(kept, np.ndarray) else np.arange(len(rows)) < (len(rows) if kept is None else kept)
        )
        self._facts.append(facts)
        self._rows.append(np.sort(rows.astype("<u2"), axis=-1))
        self._held += len(rows)
        if self._held >= BLOCK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is held, as a block of its own.

        Raises:
            TraceError: it cannot be written.
        """
        if not self._held:
            return
        facts, rows = np.concatenate(self._facts), np.concatenate(self._rows)
        rows[..., 1:] -= rows[..., :-1].copy()
        packed = zlib.compress(COUNT.pack(len(facts)) + facts.tobytes() + rows.tobytes(), 6)
        self._facts, self._rows, self._held = [], [], 0
        try:
            self._file.write(BLOCK.pack(len(packed), zlib.crc32(packed)) + packed)
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Write what is held and close the file."""
        try:
            if not self._file.closed:
                self.flush()
        finally:
            self._file.close()

    def _failed(self, error: OSError) -> TraceError:
        return TraceError(f"routing cannot be recorded in {self._path}: {error.strerror or error}")


class Trace:
    """A recording to be read.

    Attributes:
        layers: L.
        experts: E.
        topk: experts a row visits in a layer.
        about: what its writer had to say.
        whole: whether the last reading came to the file's end; False where a recording was ended within a block.
    """

    def __init__(self, path: Path) -> None:
        """Read a file's header.

        Raises:
            TraceError: it is no recording, or of another version.
        """
        self._path = path
        self.whole = False
        try:
            with path.open("rb") as file:
                begin = file.read(FIXED.size)
                if len(begin) < FIXED.size or not begin.startswith(MAGIC):
                    raise TraceError(f"{path} is no recording of routing")
                _, version, length = FIXED.unpack(begin)
                if version != VERSION:
                    raise TraceError(f"{path} has form {version}, and {VERSION} was expected")
                self._start = FIXED.size + length
                header = json.loads(file.read(min(length, LARGEST)))
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise TraceError(f"the header of {path} is damaged: {error}") from error
        try:
            self.layers, self.experts, self.topk = (int(header.pop(name)) for name in ("layers", "experts", "topk"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceError(f"the header of {path} lacks dimensions") from error
        self.about: dict[str, Any] = header

    def __iter__(self) -> Iterator[Recorded]:
        """Window by window.

        Raises:
            TraceError: a block is damaged.
        """
        self.whole = False
        with self._path.open("rb") as file:
            file.seek(self._start)
            while (block := self._block(file)) is not None:
                facts, rows = block
                borders = np.flatnonzero(np.diff(facts["window"])) + 1
                for some, theirs in zip(np.split(facts, borders), np.split(rows, borders), strict=True):
                    yield Recorded(some["conversation"], int(some["window"][0]), some["kept"].astype(np.bool_), theirs)

    def pieces(self) -> Iterator[tuple[int, Rows]]:
        """Kept rows as `Routing.rows` gives them: (conversation, rows)."""
        for each in self:
            for number in np.unique(each.conversation).tolist():
                mine = each.kept & (each.conversation == number)
                if mine.any():
                    yield number, each.rows[mine]

    def _block(self, file: BinaryIO) -> tuple[NDArray[np.void], Rows] | None:
        head = file.read(BLOCK.size)
        if len(head) < BLOCK.size:
            self.whole = not head
            return None
        length, crc = BLOCK.unpack(head)
        packed = file.read(min(length, LARGEST))
        if len(packed) < length:
            return None
        if zlib.crc32(packed) != crc:
            raise TraceError(f"a block of {self._path} is damaged")
        data = zlib.decompressobj().decompress(packed, LARGEST)
        (count,) = COUNT.unpack_from(data)
        each = ROW.itemsize + 2 * self.layers * self.topk
        if len(data) != COUNT.size + count * each or not count:
            raise TraceError(f"a block of {self._path} does not hold what it says")
        facts = np.frombuffer(data, ROW, count, COUNT.size)
        rows = np.frombuffer(data, "<u2", offset=COUNT.size + count * ROW.itemsize)
        rows = np.cumsum(rows.reshape(count, self.layers, self.topk), axis=-1, dtype=np.int64)
        if rows.max() >= self.experts:
            raise TraceError(f"a block of {self._path} names experts that there are not")
        return facts, rows.astype(np.int16)
