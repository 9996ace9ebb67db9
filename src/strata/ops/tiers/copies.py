"""Copies from RAM to a GPU's memory: as few as there are runs of neighbours, by its copy engine.

A copy of several rows is one call of the driver, `cuMemcpy2DAsync`, to which torch has no door. Structures and numbers
are those of cuda.h; `tests/ops/tiers/test_copies.py` holds them to it.
"""

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_int, c_size_t, c_ubyte, c_ulonglong, c_void_p, cast
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.tiers.cuda import loaded
from strata.ops.tiers.runs import caller, lister, most

FROM_HOST, TO_DEVICE = 1, 2


class Rows(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("srcXInBytes", c_size_t), ("srcY", c_size_t), ("srcMemoryType", c_int), ("srcHost", c_void_p),
        ("srcDevice", c_ulonglong), ("srcArray", c_void_p), ("srcPitch", c_size_t),
        ("dstXInBytes", c_size_t), ("dstY", c_size_t), ("dstMemoryType", c_int), ("dstHost", c_void_p),
        ("dstDevice", c_ulonglong), ("dstArray", c_void_p), ("dstPitch", c_size_t),
        ("WidthInBytes", c_size_t), ("Height", c_size_t),
    )  # fmt: skip


CHANGING = "srcHost", "srcPitch", "dstDevice", "WidthInBytes", "Height"
"""What differs from copy to copy."""

CALL = "cuMemcpy2DAsync_v2"
CALLS: dict[str, tuple[Any, ...]] = {CALL: (c_void_p, c_void_p)}
"""See `strata.ops.tiers.cuda.CALLS`."""


Copies = NDArray[np.int64]
"""Rows that follow one another in RAM, to places that are as far apart as experts are: int64 [n, 4], of each copy the
address of its first row, where that goes in bytes from the beginning of a landing place, bytes of a row, and rows."""


class Copier(Protocol):
    """What copies."""

    def run(self, copies: Copies, memory: Tensor, pitch: int) -> None:
        """Launch copies on the current stream.

        Args:
            copies: which; their bytes stay as they are until the stream has come so far.
            memory: uint8, where they go.
            pitch: bytes from one row to the next there.
        """
        ...


def runs(addresses: NDArray[np.int64], rows: Sequence[int], sizes: Sequence[int], cuts: NDArray[np.int64]) -> Copies:
    """Copies of some experts, each to a row of its own in which its parts follow one another.

    Args:
        addresses: int64 [n, 3], where their gate, up and down are.
        rows: the row of each.
        sizes: bytes of gate, up and down.
        cuts: int64, rising: addresses over which no copy may reach.
    """
    found = np.empty((most(len(rows), len(cuts)), 4), np.int64)
    # Names keep what has an address alive until it was read.
    given = [np.ascontiguousarray(x, np.int64) for x in (addresses, rows, sizes, cuts)]
    where, row, size, cut = (x.ctypes.data for x in given)
    return found[: lister()(where, row, len(rows), size, cut, len(cuts), found.ctypes.data)]


class CopyEngine:
    """A GPU's: some 2 microseconds of the host a copy, and no multiprocessor.

    Args:
        device: which; torch has made its context.
        driver: libcuda; None for the system's.

    Raises:
        TierError: the driver cannot do it.
    """

    def __init__(self, device: torch.device, driver: Any = None) -> None:
        self._device, self._run = device, caller()
        self._call = getattr(loaded(CALLS, "copies of rows") if driver is None else driver, CALL)
        self._function = cast(self._call, c_void_p).value
        self._rows = Rows(srcMemoryType=FROM_HOST, dstMemoryType=TO_DEVICE)
        self._words = np.array([getattr(Rows, name).offset for name in CHANGING], np.int32)
        lister()

    def run(self, copies: Copies, memory: Tensor, pitch: int) -> None:
        """See `Copier.run`."""
        self._rows.dstPitch = pitch
        copies = np.ascontiguousarray(copies)
        status = self._run(
            self._function, addressof(self._rows), self._words.ctypes.data, copies.ctypes.data, len(copies),
            memory.data_ptr(), torch.cuda.current_stream(self._device).cuda_stream,
        )  # fmt: skip
        if status:
            raise RuntimeError(f"CUDA error: the driver refused {CALL} (error {status})")


class Plain:
    """The processor itself, at once."""

    def run(self, copies: Copies, memory: Tensor, pitch: int) -> None:
        """See `Copier.run`."""
        for source, at, width, rows in copies.tolist():
            raw = np.ctypeslib.as_array((c_ubyte * (width * rows)).from_address(source))
            to = memory.as_strided((rows, width), (pitch, 1), memory.storage_offset() + at)
            to.copy_(torch.from_numpy(raw).view(rows, width))


def copier(device: torch.device) -> Copier:
    """What copies to a device.

    Raises:
        TierError: its driver cannot do it.
    """
    return CopyEngine(device) if device.type == "cuda" else Plain()
