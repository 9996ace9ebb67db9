"""The tensor table of one file: reading it, and checking it against the file before anything is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path

from strata.errors import FormatError, GgufError
from strata.formats import TYPES, resolve
from strata.formats.block import BlockType
from strata.gguf.cursor import Cursor
from strata.gguf.datafile import DataFile
from strata.gguf.shown import shown_name

MOST_DIMENSIONS = 4
_LAYOUTS = {
    kind.id: sorted((other for other in TYPES if other.id == kind.id), key=lambda k: k.weights) for kind in TYPES
}
_FEWEST_BYTES = 8 + 4 + 8 + 4 + 8  # of one entry: name length, dimensions, one length, type id, offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: as stored.
        shape: outputs first, as torch has it; the reverse of the file's ``ne``.
        type: how its blocks are stored.
        path: the file that holds it.
        offset: first byte, from the start of the file.
        nbytes: bytes, padding not included.
    """

    name: str
    shape: tuple[int, ...]
    type: BlockType
    path: Path
    offset: int
    nbytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of ``shape[-1]`` weights."""
        return self.type.row_bytes(self.shape[-1])


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table as it stands in the file; ``offset`` counts from the start of the tensor data."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def read_table(cursor: Cursor, count: int) -> list[Row]:
    """Read ``count`` lines. Names, dimensions and their number are checked; ranges need the whole table."""
    cursor.claim(count, _FEWEST_BYTES, "the number of tensors")
    rows: dict[str, Row] = {}
    for index in range(count):
        name = cursor.text(f"the name of tensor {index}")
        if name in rows:
            cursor.fail(f"tensor {shown_name(name)} appears twice")
        what = f"tensor {shown_name(name)}"
        dimensions = cursor.u32(f"the dimensions of {what}")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            cursor.fail(f"{what} has {dimensions} dimensions; expected 1 to {MOST_DIMENSIONS}")
        ne = [cursor.u64(f"the dimensions of {what}") for _ in range(dimensions)]
        if 0 in ne:
            cursor.fail(f"{what} has the dimensions {ne}; none may be zero")
        type_id = cursor.u32(f"the type of {what}")
        rows[name] = Row(name, tuple(reversed(ne)), type_id, cursor.u64(f"the offset of {what}"))
    return list(rows.values())


def place(file: DataFile, rows: Sequence[Row], data_start: int, alignment: int) -> list[TensorInfo]:
    """Find every tensor's type and byte range, and refuse ranges that are not sound.

    Raises:
        GgufError: an unknown type, a row that is no whole number of blocks, an offset off the alignment, a tensor
            that reaches past the end of the file, or two that overlap.
    """
    for row in rows:
        if row.offset % alignment:
            raise GgufError(
                f"{file}: tensor {shown_name(row.name)} starts at offset {row.offset} of the tensor data, "
                f"which is no multiple of the alignment {alignment}"
            )
    types = _types(file, rows, file.size - data_start, alignment)
    tensors = [
        TensorInfo(row.name, row.shape, kind, file.path, data_start + row.offset, _nbytes(kind, row.shape))
        for row, kind in zip(rows, types, strict=True)
    ]
    _check_ranges(file, tensors)
    return tensors


def _nbytes(kind: BlockType, shape: tuple[int, ...]) -> int:
    return kind.row_bytes(shape[-1]) * prod(shape[:-1])


def _types(file: DataFile, rows: Sequence[Row], data_size: int, alignment: int) -> list[BlockType]:
    """The type of each row. An id that two layouts share is told apart by the room the tensor has in the file."""
    room = _room(rows, data_size)
    fitting = [_fitting(file, row, room[row.offset], alignment) for row in rows]
    # Small tensors can fit both layouts, as padding hides the difference. Then the file's larger ones decide.
    decided = {kinds[0].id: kinds[0] for kinds in fitting if len(kinds) == 1}
    return [decided[kinds[0].id] if decided.get(kinds[0].id) in kinds else kinds[0] for kinds in fitting]


def _room(rows: Sequence[Row], data_size: int) -> dict[int, int]:
    """Bytes from each tensor's offset to the next tensor's, or to the end of the file."""
    offsets = sorted({row.offset for row in rows})
    return {start: end - start for start, end in pairwise([*offsets, max([data_size, *offsets])])}


def _fitting(file: DataFile, row: Row, room: int, alignment: int) -> list[BlockType]:
    """Layouts this tensor may have, the likeliest first; never empty."""
    layouts = _LAYOUTS.get(row.type_id, [])
    try:
        if len(layouts) < 2:
            kind = resolve(row.type_id, row.shape)
            kind.row_bytes(row.shape[-1])
            return [kind]
        sizes = {kind: _nbytes(kind, row.shape) for kind in layouts if row.shape[-1] % kind.weights == 0}
        # A tensor fills its room but for padding. If none does, the file has a fault that the range check names.
        snug = [kind for kind, size in sizes.items() if 0 <= room - size < alignment]
        return snug or list(sizes) or [resolve(row.type_id, row.shape, room)]
    except FormatError as error:
        raise GgufError(f"{file}: tensor {shown_name(row.name)}: {error}") from error


def _check_ranges(file: DataFile, tensors: Sequence[TensorInfo]) -> None:
    if not tensors:
        return
    needed = max(tensor.offset + tensor.nbytes for tensor in tensors)
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for tensor in ordered:
        if tensor.offset + tensor.nbytes > file.size:
            raise GgufError(
                f"{file}: tensor {shown_name(tensor.name)} ({tensor.type.name}, shape {list(tensor.shape)}) needs "
                f"bytes {tensor.offset} to {tensor.offset + tensor.nbytes}, but the file has {file.size} bytes; all "
                f"tensors together need {needed}. The file is truncated or damaged: get it again"
            )
    for one, other in pairwise(ordered):
        if one.offset + one.nbytes > other.offset:
            raise GgufError(
                f"{file}: tensor {shown_name(one.name)} ends at byte {one.offset + one.nbytes}, inside tensor "
                f"{shown_name(other.name)}, which starts at byte {other.offset}"
            )
