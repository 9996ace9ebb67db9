"""Writing models: one file or a split set, streamed, under a name that appears only when the file is complete."""

import os
import secrets
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from strata.errors import FormatError, GgufError
from strata.formats import quantise
from strata.formats.block import F32, U8, BlockType
from strata.gguf.encode import Writable, encode_metadata, encode_text
from strata.gguf.header import DEFAULT_ALIGNMENT, MAGIC, VERSION, checked_alignment, padded
from strata.gguf.shards import shard_name
from strata.gguf.shown import shown_name, shown_path
from strata.gguf.tensors import MOST_DIMENSIONS

_MOST_SHARDS = 65535  # split.count is a u16
_SPLIT_KEYS = frozenset({"split.no", "split.count", "split.tensors.count"})


@dataclass(frozen=True, slots=True)
class TensorData:
    """One tensor to write.

    Attributes:
        name: unique in the model.
        shape: outputs first, as torch has it.
        type: block type of ``data``.
        data: the stored bytes, uint8 of any shape; or a function that yields them in pieces, so that a model larger
            than memory can be written. It is called once, when the tensor's turn comes.
    """

    name: str
    shape: tuple[int, ...]
    type: BlockType
    data: U8 | Callable[[], Iterable[U8]]

    @classmethod
    def quantised(cls, name: str, values: F32, kind: BlockType) -> Self:
        """From float32 values of the tensor's shape."""
        return cls(name, values.shape, kind, quantise(kind, values))

    @property
    def nbytes(self) -> int:
        """Bytes the shape and type call for."""
        what = f"tensor {shown_name(self.name)}"
        if not 1 <= len(self.shape) <= MOST_DIMENSIONS or min(self.shape) < 1:
            raise GgufError(f"{what}: shape {list(self.shape)} must be 1 to {MOST_DIMENSIONS} numbers of at least 1")
        try:
            return self.type.row_bytes(self.shape[-1]) * prod(self.shape[:-1])
        except FormatError as error:
            raise GgufError(f"{what}: {error}") from error

    def pieces(self) -> Iterator[memoryview]:
        """The bytes to write, checked to be as many as called for."""
        done = 0
        for piece in [self.data] if isinstance(self.data, np.ndarray) else self.data():
            if piece.dtype != np.uint8:
                raise GgufError(f"tensor {shown_name(self.name)}: data must be uint8, not {piece.dtype}")
            done += piece.nbytes
            yield np.ascontiguousarray(piece).reshape(-1).data
        if done != self.nbytes:
            raise GgufError(
                f"tensor {shown_name(self.name)}: {self.type.name} of shape {list(self.shape)} takes {self.nbytes} "
                f"bytes, but the data has {done}"
            )


def write_model(
    path: str | PathLike[str],
    metadata: Mapping[str, Writable],
    tensors: Iterable[TensorData],
    *,
    shards: Sequence[Sequence[str]] | None = None,
) -> tuple[Path, ...]:
    """Write a model (gguf-tensors spec, sections 1 and 8).

    Args:
        path: the file to write, replaced if it exists. With ``shards``, ``PREFIX.gguf`` stands for the files
            ``PREFIX-0000i-of-0000n.gguf``.
        metadata: Python integers become u32 (i32 if negative, 64 bits where needed), floats f32, lists of strings
            string arrays; NumPy scalars and one-dimensional arrays keep their type. ``general.alignment`` is obeyed.
            ``split.*`` keys are the writer's own: those given are left out.
        tensors: in file order.
        shards: names of the tensors of each file; a list may be empty. Metadata goes to the first file.

    Returns:
        The files written. All appear, by renaming, when the last is complete; an error before leaves none.

    Raises:
        GgufError: a value or shape that cannot be stored, bytes that do not fit the shape, a tensor in no shard or
            in two, two types that share an id, or the disk refuses.
    """
    path = Path(path)
    if not path.name or "\0" in str(path):
        raise GgufError(f"{shown_path(path)}: not a file name")
    listed = list(tensors)
    for name, count in Counter(tensor.name for tensor in listed).items():
        if count > 1:
            raise GgufError(f"{shown_path(path)}: tensor {shown_name(name)} is given {count} times")
    kinds = {tensor.type.id: tensor.type for tensor in listed}
    for one, other in ((tensor.type, kinds[tensor.type.id]) for tensor in listed):
        if one is not other:
            raise GgufError(
                f"{shown_path(path)}: {one.name} and {other.name} share type id {one.id} and are told apart by length "
                "only; a model may hold one of them"
            )
    own = {key: value for key, value in metadata.items() if key not in _SPLIT_KEYS}
    files = [_File(path, own, listed)] if shards is None else list(_split(path, own, listed, shards))
    try:
        _write_all(files)
    except OSError as error:
        raise GgufError(f"{shown_path(path)}: cannot be written: {error.strerror or error}") from error
    return tuple(file.path for file in files)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    metadata: Mapping[str, Writable]
    tensors: Sequence[TensorData]

    def write(self, out: BinaryIO) -> None:
        """Header, then each tensor padded to the alignment; the last one too, as llama.cpp does."""
        alignment = self._alignment()
        header = self._header(alignment)
        out.write(header)
        out.write(bytes(padded(len(header), alignment) - len(header)))
        for tensor in self.tensors:
            out.writelines(tensor.pieces())
            out.write(bytes(padded(tensor.nbytes, alignment) - tensor.nbytes))

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise GgufError(f"{shown_path(self.path)}: metadata key 'general.alignment' must be an integer")
        return checked_alignment(shown_path(self.path), int(value))

    def _header(self, alignment: int) -> bytes:
        head = [MAGIC, struct.pack("<IQQ", VERSION, len(self.tensors), len(self.metadata))]
        head.append(encode_metadata(self.metadata))
        offset = 0
        for tensor in self.tensors:
            size = tensor.nbytes
            head.append(encode_text(tensor.name, "a tensor's name"))
            head.append(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape)))
            head.append(struct.pack("<IQ", tensor.type.id, offset))
            offset += padded(size, alignment)
        return b"".join(head)


def _split(
    path: Path, metadata: Mapping[str, Writable], tensors: Sequence[TensorData], shards: Sequence[Sequence[str]]
) -> Iterator[_File]:
    where = shown_path(path)
    if not 1 <= len(shards) <= _MOST_SHARDS:
        raise GgufError(f"{where}: a split set has 1 to {_MOST_SHARDS} files, not {len(shards)}")
    by_name = {tensor.name: tensor for tensor in tensors}
    times = Counter(name for names in shards for name in names)
    for name in [*by_name, *times]:
        if name not in by_name or times[name] != 1:
            given = "is not given" if name not in by_name else f"is in {times[name]} shards"
            raise GgufError(f"{where}: tensor {shown_name(name)} {given}; each tensor must be in exactly one shard")
    # A file without the key is read with the default alignment, so each needs its own.
    common = {key: value for key, value in metadata.items() if key == "general.alignment"}
    for index, names in enumerate(shards):
        split: dict[str, Writable] = {
            "split.no": np.uint16(index),
            "split.count": np.uint16(len(shards)),
            "split.tensors.count": np.int32(len(tensors)),
        }
        name = shard_name(path.name.removesuffix(".gguf"), index + 1, len(shards))
        own = metadata if index == 0 else common
        yield _File(path.with_name(name), {**own, **split}, [by_name[name] for name in names])


def _write_all(files: Sequence[_File]) -> None:
    """Write every file aside, then rename them all: a reader never sees half a model."""
    for file in files:
        if file.path.is_dir():
            raise GgufError(f"{shown_path(file.path)}: is a folder")
    with ExitStack() as undo:
        aside = []
        for file in files:
            # A short name of its own: the final one may already be as long as names can be.
            part = file.path.with_name(f".{secrets.token_hex(8)}.part")
            undo.callback(part.unlink, missing_ok=True)
            with part.open("xb") as out:
                file.write(out)
                out.flush()
                os.fsync(out.fileno())
            aside.append(part)
        for part, file in zip(aside, files, strict=True):
            part.replace(file.path)
