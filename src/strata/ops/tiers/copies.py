"""Copies from RAM to a GPU's memory: as few as there are runs of neighbours, by its copy engine.

A copy of several rows is one call of the driver, `cuMemcpy2DAsync`, to which torch has no door. Structures and numbers
are those of cuda.h; `tests/ops/tiers/test_copies.py` holds them to it.
"""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref, c_int, c_size_t, c_ubyte, c_ulonglong, c_void_p
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.tiers.cuda import loaded

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


CALL = "cuMemcpy2DAsync_v2"
CALLS: dict[str, tuple[Any, ...]] = {CALL: (c_void_p, c_void_p)}
"""See `strata.ops.tiers.cuda.CALLS`."""


class Copy(NamedTuple):
    """Rows that follow one another in RAM, to places that are as far apart as experts are.

    Attributes:
        source: address of the first.
        at: where it goes, in bytes from the beginning of a landing place.
        width: bytes of a row.
        rows: how many.
    """

    source: int
    at: int
    width: int
    rows: int


class Copier(Protocol):
    """What copies."""

    def run(self, copies: Iterable[Copy], memory: Tensor, pitch: int) -> None:
        """Launch copies on the current stream.

        Args:
            copies: which; their bytes stay as they are until the stream has come so far.
            memory: uint8, where they go.
            pitch: bytes from one row to the next there.
        """
        ...


def runs(
    addresses: NDArray[np.int64], rows: Sequence[int], sizes: Sequence[int], cuts: NDArray[np.int64]
) -> list[Copy]:
    """Copies of some experts, each to a row of its own in which its parts follow one another.

    Args:
        addresses: int64 [n, 3], where their gate, up and down are.
        rows: the row of each.
        sizes: bytes of gate, up and down.
        cuts: int64, rising: addresses over which no copy may reach.
    """
    each, starts = sum(sizes), [0, *np.cumsum(sizes)[:-1].tolist()]
    parts = list(zip(range(len(sizes)), starts, sizes, strict=True))
    if (addresses == addresses[:, :1] + np.array(starts)).all():  # as they are to lie
        parts = [(0, 0, each)]
    at = np.array(rows, np.int64)
    apart = np.diff(at) != 1
    found = []
    for part, start, size in parts:
        firsts = addresses[:, part]
        ends = np.flatnonzero(apart | (np.diff(firsts) != size)) + 1
        sources = firsts.tolist()
        found += [
            Copy(sources[low], start + rows[low] * each, size, high - low)
            for low, high in pairwise([0, *ends.tolist(), len(sources)])
        ]
    return [piece for copy in found for piece in _cut(copy, each, cuts)] if len(cuts) else found


def _cut(copy: Copy, pitch: int, cuts: NDArray[np.int64]) -> Iterator[Copy]:
    """The same without reaching over an address."""
    source, at, width, rows = copy
    inside = cuts[np.searchsorted(cuts, source, side="right") :][:1]
    if not len(inside) or inside[0] >= source + width * rows:
        yield copy
        return
    whole, part = divmod(int(inside[0]) - source, width)
    if whole:
        yield Copy(source, at, width, whole)
    source, at = source + whole * width, at + whole * pitch
    if part:
        yield Copy(source, at, part, 1)
        yield from _cut(Copy(source + part, at + part, width - part, 1), pitch, cuts)
        source, at, whole = source + width, at + pitch, whole + 1
    if whole < rows:
        yield from _cut(Copy(source, at, width, rows - whole), pitch, cuts)


class CopyEngine:
    """A GPU's: some 2 microseconds of the host a copy, and no multiprocessor.

    Args:
        device: which; torch has made its context.
        driver: libcuda; None for the system's.

    Raises:
        TierError: the driver cannot do it.
    """

    def __init__(self, device: torch.device, driver: Any = None) -> None:
        self._device = device
        self._call = getattr(loaded(CALLS, "copies of rows") if driver is None else driver, CALL)
        self._rows = Rows(srcMemoryType=FROM_HOST, dstMemoryType=TO_DEVICE)

    def run(self, copies: Iterable[Copy], memory: Tensor, pitch: int) -> None:
        """See `Copier.run`."""
        stream, target = torch.cuda.current_stream(self._device).cuda_stream, memory.data_ptr()
        one = self._rows
        one.dstPitch = pitch
        for source, at, width, rows in copies:
            one.srcHost, one.srcPitch, one.dstDevice = source, width, target + at
            one.WidthInBytes, one.Height = width, rows
            status = self._call(byref(one), stream)
            if status:
                raise RuntimeError(f"CUDA error: the driver refused {CALL} (error {status})")


class Plain:
    """The processor itself, at once."""

    def run(self, copies: Iterable[Copy], memory: Tensor, pitch: int) -> None:
        """See `Copier.run`."""
        for source, at, width, rows in copies:
            raw = np.ctypeslib.as_array((c_ubyte * (width * rows)).from_address(source))
            to = memory.as_strided((rows, width), (pitch, 1), memory.storage_offset() + at)
            to.copy_(torch.from_numpy(raw).view(rows, width))


def copier(device: torch.device) -> Copier:
    """What copies to a device.

    Raises:
        TierError: its driver cannot do it.
    """
    return CopyEngine(device) if device.type == "cuda" else Plain()
