"""The n-gram table where its rows are read from memory or disk by `strata.memory.ngram`."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from strata.formats import BlockType, dequantise
from strata.memory.ngram import Asked, Rows


class NgramTable:
    """A `strata.model.weights.AskedTable`.

    Attributes:
        shape: (rows, width).
        type: of its blocks.
        source: who reads the rows.
    """

    __slots__ = ("shape", "source", "type")

    def __init__(self, shape: tuple[int, int], kind: BlockType, source: Rows) -> None:
        self.shape = shape
        self.type = kind
        self.source = source

    def ask(self, ids: Sequence[int]) -> Asked:
        """Begin to read rows."""
        return self.source.ask(np.array(ids, np.int64))

    def answer(self, asked: Asked) -> Tensor:
        """float32 [rows asked for, width]."""
        return torch.from_numpy(dequantise(self.type, self.source.take(asked)))

    def rows(self, ids: Sequence[int]) -> Tensor:
        """float32 [len(ids), width]."""
        return self.answer(self.ask(ids))
