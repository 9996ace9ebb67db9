"""The n-gram table beside a GPU: its rows stay in main memory or on the disk, and those that are visited cross over.

The released table is 28.8 GB, more than most cards have in all; a token visits sixteen rows of 90 bytes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from strata.formats import BlockType, dequantise
from strata.memory.ngram import Asked, Rows
from strata.ops.gpu.upload import DeviceTable
from strata.ops.planes import LAYOUTS, pack

FEW = 512
"""Rows up to which the host dequantises: 100 microseconds; beyond it the device does, in some thirty launches."""


class HostTable:
    """A `strata.model.weights.AskedTable` whose answers are on a device, with the bytes of `DeviceTable`.

    Attributes:
        shape: (rows, width).
        type: of its blocks.
        source: who reads the rows.
    """

    __slots__ = ("_device", "shape", "source", "type")

    def __init__(self, shape: tuple[int, int], kind: BlockType, source: Rows, device: torch.device) -> None:
        self.shape = shape
        self.type = kind
        self.source = source
        self._device = device

    def ask(self, ids: Sequence[int] | Tensor) -> Asked:
        """Begin to read rows; numbers that are on the device are waited for."""
        numbers = ids.reshape(-1).cpu().numpy() if isinstance(ids, Tensor) else np.array(ids, np.int64)
        return self.source.ask(numbers)

    def answer(self, asked: Asked) -> Tensor:
        """float32 [rows asked for, width], on the device."""
        raw, width, name = self.source.take(asked), self.shape[1], self.type.name
        if len(raw) <= FEW or name not in LAYOUTS:
            return self._there(torch.from_numpy(dequantise(self.type, raw)))
        planes = pack(name, self._there(torch.from_numpy(raw)), width)
        every = torch.arange(len(raw), device=self._device)
        return DeviceTable((len(raw), width), planes, name, None).rows(every)

    def rows(self, ids: Sequence[int] | Tensor) -> Tensor:
        """float32 [len(ids), width]."""
        return self.answer(self.ask(ids))

    def _there(self, here: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return here
        return here.pin_memory().to(self._device, non_blocking=True)
