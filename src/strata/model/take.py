"""Handing out a file's tensors: each once, checked; matrices as they are stored, the rest in float32."""

from collections.abc import Container, Mapping, Sequence
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import ModelError
from strata.formats import BlockType, apply_tensor_scale, by_name
from strata.model.weights import Matrix, Quantised

_F32 = by_name("F32")


class Info(Protocol):
    """What the loader needs to know of a tensor without reading it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs first."""
        ...

    @property
    def type(self) -> BlockType:
        """Of its blocks."""
        ...


class Directory(Protocol):
    """The part of `strata.gguf.TensorDirectory` the loader uses."""

    @property
    def tensors(self) -> Mapping[str, Info]:
        """All tensors by name."""
        ...

    def load(self, name: str) -> NDArray[np.float32]:
        """A whole tensor, dequantised."""
        ...

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes, ``uint8 [*shape[:-1], row_bytes]``."""
        ...

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        """Some rows of a matrix, dequantised."""
        ...


class FileTable:
    """A `RowTable` that reads its rows from the file when asked; repeated rows are read once a call."""

    def __init__(self, directory: Directory, name: str, shape: tuple[int, int]) -> None:
        self._directory = directory
        self._name = name
        self.shape = shape

    def rows(self, ids: Sequence[int]) -> Tensor:
        """float32 [len(ids), width]."""
        return torch.from_numpy(self._directory.rows(self._name, ids))

    def ask(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Nothing is read before it is needed."""
        return tuple(ids)

    def answer(self, asked: tuple[int, ...]) -> Tensor:
        """float32 [len(asked), width]."""
        return self.rows(asked)

    def stored(self) -> Quantised:
        """The whole table as the file stores it."""
        return Quantised(self._directory.tensors[self._name].type, self._directory.raw(self._name))


class Taker:
    """Hands out tensors once each, after checking their shape, and knows which nobody asked for.

    A dry taker reads nothing: it hands out tensors without memory, counts their bytes and collects every problem
    instead of stopping at the first.

    Args:
        directory: where tensors come from.
        kept: names of the block types whose matrices are handed out as they are stored. Matrices of others, and all
            other tensors, become float32.
        dry: read nothing.
    """

    def __init__(self, directory: Directory, *, kept: Container[str] = (), dry: bool = False) -> None:
        self._directory = directory
        self._kept = kept
        self._dry = dry
        self.widened: set[str] = set()
        self._taken: set[str] = set()
        self.problems: list[str] = []
        self.bytes = 0

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self._directory.tensors

    def rows_of(self, name: str) -> int:
        """Rows of a matrix whose height the metadata does not say; 0 if it is missing."""
        return self._directory.tensors[name].shape[0] if self.has(name) else 0

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A float32 tensor, multiplied by its `.scale` tensor if the file has one (NVFP4)."""
        self._check(name, shape)
        scale = self._scale(name, shape)
        self.bytes += 4 * prod(shape)
        if self._dry:
            return torch.empty((0,) * len(shape), device="meta")  # a wrong shape may be too large even for a view
        values = self._directory.load(name)
        return torch.from_numpy(values if scale is None else apply_tensor_scale(values, self._directory.load(scale)))

    def matrix(self, name: str, *shape: int, cut: int = 0) -> Matrix:
        """A matrix `Ops.linear` multiplies with: as it is stored, or a tensor if no type is kept so.

        One whose type is not kept, or whose rows cannot be cut before input `cut`, is stored anew in float32.
        """
        if not self._kept:
            return self.tensor(name, *shape)
        info = self._directory.tensors.get(name)
        if info is None or info.type.name not in self._kept or cut % info.type.weights:
            if info is not None:
                self.widened.add(info.type.name)
            values = self.tensor(name, *shape)
            empty = np.empty((0,) * len(shape), np.uint8)
            return Quantised(_F32, empty if self._dry else values.numpy().view(np.uint8))
        self._check(name, shape)
        scale = self._scale(name, shape)
        if tuple(info.shape) == shape:
            self.bytes += prod(shape[:-1]) * info.type.row_bytes(shape[-1])
        if self._dry:
            return Quantised(info.type, np.empty((0,) * len(shape), np.uint8))
        return Quantised(info.type, self._directory.raw(name), None if scale is None else self._directory.load(scale))

    def table(self, name: str, rows: int, width: int) -> FileTable:
        """A matrix that stays in the file."""
        self._check(name, (rows, width))
        return FileTable(self._directory, name, (rows, width))

    def unused(self) -> list[str]:
        """Names of tensors nobody took; the optional input scales of NVFP4 files are known and not needed."""
        left = set(self._directory.tensors) - self._taken
        return sorted(name for name in left if not name.endswith(".input_scale"))

    def report(self, problem: str) -> None:
        """Stop at a problem, or note it when dry."""
        if not self._dry:
            raise ModelError(problem)
        self.problems.append(problem)

    def _scale(self, name: str, shape: tuple[int, ...]) -> str | None:
        """Name of the tensor that multiplies this one, if the file has it."""
        scale = name.removesuffix(".weight") + ".scale"
        if not name.endswith(".weight") or not self.has(scale):
            return None
        self._check(scale, shape[:1] if len(shape) == 3 else (1,))
        return scale

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        self._taken.add(name)
        if not self.has(name):
            self.report(f"tensor {name} is missing; expected shape {list(shape)}")
        elif (found := tuple(self._directory.tensors[name].shape)) != shape:
            self.report(f"tensor {name} has shape {list(found)}, expected {list(shape)}")
