"""The tensor table of one file: reading it, and checking it against the file before anything is loaded."""

from collections.abc import Mapping, Sequence
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
            that reaches past the end of the file, two that overlap, or a tensor whose layout cannot be told.
    """
    for row in rows:
        if row.offset % alignment:
            raise GgufError(
                f"{file}: tensor {shown_name(row.name)} starts at offset {row.offset} of the tensor data, "
                f"which is no multiple of the alignment {alignment}"
            )
    room = _room(rows, file.size - data_start)
    kinds = _shared_ids(rows, room, alignment)
    tensors = []
    for row in rows:
        kind = _type(file, row, kinds)
        tensors.append(
            TensorInfo(row.name, row.shape, kind, file.path, data_start + row.offset, _nbytes(kind, row.shape))
        )
    _check_ranges(file, tensors)
    for row, tensor in zip(rows, tensors, strict=True):
        if row.type_id in kinds and not _snug(tensor.type, row, room[row.offset], alignment):
            raise GgufError(
                f"{file}: tensor {shown_name(row.name)} of type id {row.type_id} takes {tensor.nbytes} bytes as "
                f"{tensor.type.name}, the layout that fits this file best, but has room for {room[row.offset]}; the "
                "layouts of this id are told apart by length, so no more than padding may follow"
            )
    return tensors


def _nbytes(kind: BlockType, shape: tuple[int, ...]) -> int:
    return kind.row_bytes(shape[-1]) * prod(shape[:-1])


def _type(file: DataFile, row: Row, shared: Mapping[int, BlockType]) -> BlockType:
    try:
        kind = shared.get(row.type_id) or resolve(row.type_id, row.shape)
        kind.row_bytes(row.shape[-1])
    except FormatError as error:
        raise GgufError(f"{file}: tensor {shown_name(row.name)}: {error}") from error
    return kind


def _room(rows: Sequence[Row], data_size: int) -> dict[int, int]:
    """Bytes from each tensor's offset to the next tensor's, or to the end of the file."""
    offsets = sorted({row.offset for row in rows})
    return {start: end - start for start, end in pairwise([*offsets, data_size])}


def _shared_ids(rows: Sequence[Row], room: Mapping[int, int], alignment: int) -> dict[int, BlockType]:
    """For each id that two layouts share, the one in which most of the file's tensors fill their room.

    One tensor would not do: a small one fits both, as padding hides the difference, and one that was cut may fit the
    shorter by chance. On a tie the layout with fewer weights wins, which is llama.cpp's.
    """
    found = {}
    for type_id, layouts in _LAYOUTS.items():
        mine = [row for row in rows if row.type_id == type_id] if len(layouts) > 1 else []
        if mine:
            fits = [sum(_snug(kind, row, room[row.offset], alignment) for row in mine) for kind in layouts]
            found[type_id] = layouts[fits.index(max(fits))]
    return found


def _snug(kind: BlockType, row: Row, room: int, alignment: int) -> bool:
    """The tensor fills its room but for padding."""
    return row.shape[-1] % kind.weights == 0 and 0 <= room - _nbytes(kind, row.shape) < alignment


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
