"""Handing out a file's tensors: each once, checked, in float32."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import ModelError
from strata.formats import apply_tensor_scale


class Info(Protocol):
    """What the loader needs to know of a tensor without reading it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs first."""
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


class Taker:
    """Hands out tensors once each, after checking their shape, and knows which nobody asked for.

    A dry taker reads nothing: it hands out tensors without memory, counts their bytes and collects every problem
    instead of stopping at the first.
    """

    def __init__(self, directory: Directory, *, dry: bool = False) -> None:
        self._directory = directory
        self._dry = dry
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
        scale = name.removesuffix(".weight") + ".scale"
        scaled = name.endswith(".weight") and self.has(scale)
        if scaled:
            self._check(scale, shape[:1] if len(shape) == 3 else (1,))
        self.bytes += 4 * prod(shape)
        if self._dry:
            return torch.empty((0,) * len(shape), device="meta")  # a wrong shape may be too large even for a view
        values = self._directory.load(name)
        return torch.from_numpy(apply_tensor_scale(values, self._directory.load(scale)) if scaled else values)

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

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        self._taken.add(name)
        if not self.has(name):
            self.report(f"tensor {name} is missing; expected shape {list(shape)}")
        elif (found := tuple(self._directory.tensors[name].shape)) != shape:
            self.report(f"tensor {name} has shape {list(found)}, expected {list(shape)}")
