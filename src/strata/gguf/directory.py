"""All tensors of a model, whichever files they lie in."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import GgufError
from strata.formats import dequantise
from strata.formats.block import F32, U8
from strata.gguf.datafile import DataFile
from strata.gguf.metadata import Metadata
from strata.gguf.shards import read_set
from strata.gguf.shown import shown_name, shown_path
from strata.gguf.tensors import TensorInfo


@dataclass(frozen=True, slots=True, eq=False)
class TensorDirectory:
    """One index over all files of a model. Opening it reads headers only; weights are read when asked for.

    Attributes:
        metadata: of the first file; the other files of a split set repeat nothing.
        tensors: name to TensorInfo, in the order of the files.
        data_files: the open files, in the order of the set.
    """

    metadata: Metadata
    tensors: Mapping[str, TensorInfo]
    data_files: tuple[DataFile, ...] = field(repr=False)

    def __repr__(self) -> str:
        names = ", ".join(shown_path(path) for path in self.files)
        return f"TensorDirectory({len(self.tensors)} tensors in {names})"

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths, in the order of the set."""
        return tuple(file.path for file in self.data_files)

    def file(self, info: TensorInfo) -> DataFile:
        """The open file that holds a tensor."""
        return next(file for file in self.data_files if file.path == info.path)

    def info(self, name: str) -> TensorInfo:
        """The tensor called ``name``; a GgufError with close names if there is none."""
        info = self.tensors.get(name)
        if info is None:
            close = difflib.get_close_matches(name, self.tensors, n=3)
            hint = f"; close names are {', '.join(map(shown_name, close))}" if close else ""
            raise GgufError(f"{shown_path(self.files[0])}: no tensor {shown_name(name)}{hint}")
        return info

    def raw(self, name: str) -> U8:
        """The stored bytes, uint8 [*shape[:-1], row_bytes]: a read-only view of the mapped file, nothing is copied."""
        info = self.info(name)
        stored = self.file(info).buffer[info.offset : info.offset + info.nbytes]
        return stored.reshape(*info.shape[:-1], info.row_bytes)

    def load(self, name: str) -> F32:
        """The weights, float32 of the tensor's shape. Values that are not finite are passed on as stored."""
        info = self.info(name)
        return dequantise(info.type, self.raw(name))

    def rows(self, name: str, ids: Sequence[int] | NDArray[np.integer[Any]]) -> F32:
        """Some rows of a matrix, float32 [len(ids), width], reading no other row.

        Args:
            name: a tensor of two dimensions, [rows, width]; it may be larger than memory.
            ids: row numbers, in any order, repeated or not.

        Raises:
            GgufError: the tensor is no matrix, an id is no integer or out of range, or reading fails.
        """
        info = self.info(name)
        if len(info.shape) != 2:
            raise GgufError(f"{shown_path(info.path)}: tensor {shown_name(name)} has shape {list(info.shape)}, no rows")
        # int64 is safe: a row takes at least one byte of a file that the system could map.
        wanted, inverse = np.unique(_checked_ids(info, ids).astype(np.int64), return_inverse=True)
        raw = np.empty((len(wanted), info.row_bytes), np.uint8)
        file = self.file(info)
        breaks = np.flatnonzero(np.diff(wanted) != 1) + 1  # neighbours are read in one go
        for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(wanted)], strict=True):
            if end > start:
                file.read_into(raw[start:end], info.offset + int(wanted[start]) * info.row_bytes)
        return dequantise(info.type, raw)[inverse]


def open_model(path: str | PathLike[str]) -> TensorDirectory:
    """Open a GGUF file, or the split set it is any part of.

    Cheap whatever the size: headers are walked and checked, nothing is decoded (gguf-tensors spec, sections 1 and 8).

    Raises:
        GgufError: a file is missing, damaged, truncated or foreign; says which, what was found and expected.
    """
    parts = read_set(Path(path))
    tensors = {tensor.name: tensor for part in parts for tensor in part.tensors}
    return TensorDirectory(parts[0].metadata, MappingProxyType(tensors), tuple(part.file for part in parts))


def _checked_ids(info: TensorInfo, ids: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, np.int64)
    what = f"{shown_path(info.path)}: rows of tensor {shown_name(info.name)}"
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GgufError(f"{what}: expected a list of integers, not {array.dtype} of shape {list(array.shape)}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= info.shape[0]:
        raise GgufError(f"{what}: row {low if low < 0 else high} is out of range, there are {info.shape[0]}")
    return array
