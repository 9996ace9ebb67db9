"""The header of one file: magic, version, metadata, tensor table (gguf-tensors spec, section 1)."""

from dataclasses import dataclass
from pathlib import Path

from strata.errors import GgufError
from strata.gguf.cursor import Cursor
from strata.gguf.datafile import DataFile
from strata.gguf.metadata import Metadata, read_metadata
from strata.gguf.tensors import TensorInfo, place, read_table

MAGIC = b"GGUF"
VERSION = 3
DEFAULT_ALIGNMENT = 32
FIXED_BYTES = 24  # magic, version, number of tensors, number of metadata keys


@dataclass(frozen=True, slots=True)
class Part:
    """One opened file: its metadata, and its tensors in the table's order."""

    file: DataFile
    metadata: Metadata
    tensors: list[TensorInfo]


def padded(size: int, alignment: int) -> int:
    """The next multiple of ``alignment``."""
    return -(-size // alignment) * alignment


def read_part(path: Path) -> Part:
    """Open one file and check everything that can be checked without reading tensor data.

    Raises:
        GgufError: whatever is wrong with the file, with file, key or tensor, found and expected.
    """
    file = DataFile(path)
    cursor = Cursor(file)
    _check_magic(cursor)
    count, keys = cursor.u64("the number of tensors"), cursor.u64("the number of metadata keys")
    metadata = read_metadata(cursor, keys)
    alignment = checked_alignment(file, metadata.integer("general.alignment", DEFAULT_ALIGNMENT))
    rows = read_table(cursor, count)
    return Part(file, metadata, place(file, rows, padded(cursor.position, alignment), alignment))


def checked_alignment(file: object, alignment: int) -> int:
    """The alignment, if it is a power of two."""
    if alignment <= 0 or alignment & (alignment - 1):
        raise GgufError(f"{file}: metadata key 'general.alignment' must be a power of two, but it is {alignment}")
    return alignment


def _check_magic(cursor: Cursor) -> None:
    file = cursor.file
    start = bytes(cursor.view[:4])
    if not start:
        raise GgufError(f"{file}: the file is empty; a GGUF header takes {FIXED_BYTES} bytes")
    if start != MAGIC[: len(start)]:
        raise GgufError(f"{file}: not a GGUF file: it starts with {start!r}, expected {MAGIC!r}")
    if file.size < FIXED_BYTES:
        raise GgufError(f"{file}: the file has {file.size} bytes; a GGUF header takes {FIXED_BYTES}. It is truncated")
    cursor.skip(len(MAGIC), "the magic")
    version = cursor.u32("the version")
    if version.to_bytes(4, "little") == VERSION.to_bytes(4, "big"):
        raise GgufError(f"{file}: a big-endian file; only little-endian ones are read (gguf-convert-endian converts)")
    if version != VERSION:
        raise GgufError(f"{file}: GGUF version {version}; expected version {VERSION}")
