"""Where a model's experts lie in RAM, for the CPU's kernels and the GPU alike: the file's blocks."""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import FormatError, TierError
from strata.experts.compute import Expert, Stored
from strata.experts.misses.answer import addresses_of
from strata.memory.tier import Stock
from strata.model.weights import Moe
from strata.ops.experts.slots import SlotLayout
from strata.ops.gpu.size import check_experts

_READ_ONLY = 8  # of cudaHostRegister
_PORTABLE = 1
SHARE = 8 << 20
"""Bytes a thread copies at a time."""

READERS = 8

PIECE = 1 << 30
"""Bytes that are locked at a time; a bound is met after some of them, and the report says how many."""


@dataclass(frozen=True, slots=True)
class Ram:
    """Experts of all layers.

    Attributes:
        addresses: of every expert's gate, up and down, ``int64 [L, E, 3]``.
        base: uint8, memory that a GPU reaches; places are counted from it.
        kept: what the addresses point to.
        stock: decides which experts are there, if not all of them are.
        cuts: int64, rising: where one part of it ends that the GPU knows, and the next begins; no copy reaches over.
    """

    addresses: NDArray[np.int64]
    base: Tensor
    kept: Any = None
    stock: Stock | None = None
    cuts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def described(layers: Sequence[Moe]) -> list[Expert]:
    """Types, shapes and scales of every layer's experts, for the CPU's kernels."""
    found = []
    for moe in layers:
        matrices = [check_experts(m) for m in (moe.gate, moe.up, moe.down)]
        found.append(Expert(*(Stored(m.type, m.raw, m.scale) for m in matrices)))
    return found


def layouts(layers: Sequence[Moe]) -> list[SlotLayout]:
    """Slots of every layer's experts."""
    found = []
    for moe in layers:
        gate, up, down = (check_experts(m) for m in (moe.gate, moe.up, moe.down))
        _, inner, hidden = gate.shape
        found.append(SlotLayout(gate.type.name, up.type.name, down.type.name, hidden, inner))
    return found


def mapped(layers: Sequence[Moe]) -> Ram:
    """Where the file is mapped: nothing is copied. A GPU does not reach it."""
    return Ram(addresses_of(described(layers)), torch.zeros(64, dtype=torch.uint8))


def registered(layers: Sequence[Moe]) -> Ram | None:
    """Where the file is mapped, locked and known to the GPU, so that nothing is there twice; None if that cannot be.

    Nothing is copied: pages of the file that are in memory stay there, others are read now.
    """
    base = torch.zeros(512, dtype=torch.uint8, pin_memory=True)
    raws = [check_experts(m).raw for moe in layers for m in (moe.gate, moe.up, moe.down)]
    runtime: Any = torch.cuda.cudart()
    locked = _Locked(runtime)
    for first, last in pages([(raw.ctypes.data, raw.ctypes.data + raw.nbytes) for raw in raws]):
        if int(runtime.cudaHostRegister(first, last - first, _PORTABLE | _READ_ONLY)):
            locked.free()
            _forget_error()
            return None
        locked.ranges.append(first)
    addresses = addresses_of(described(layers))
    if (addresses % 16).any():
        locked.free()
        return None
    return Ram(addresses, base, (raws, locked))


def pages(ranges: Sequence[tuple[int, int]], size: int = 4096) -> list[tuple[int, int]]:
    """Whole pages of some ranges of addresses; those that touch are one, for a page can be locked once."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((at // size * size, -(-end // size) * size) for at, end in ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


class _Locked:
    """Ranges that the GPU knows, until nobody holds them any more."""

    def __init__(self, runtime: Any, kept: Any = None) -> None:
        self._runtime, self._kept = runtime, kept
        self.ranges: list[int] = []

    def free(self) -> None:
        """Let the GPU forget them."""
        while self.ranges:
            self._runtime.cudaHostUnregister(self.ranges.pop())

    def __del__(self) -> None:
        """Before the mapping goes."""
        self.free()


def _forget_error() -> None:
    """A refused call leaves an error that the next launch would take for its own."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda").add_(1)


def pinned(layers: Sequence[Moe], on_bytes: Callable[[int], None] | None = None) -> Ram:
    """Copied into memory that a GPU reaches, a layer at a time.

    Raises:
        TierError: the system does not lock so much memory.
    """
    base = torch.zeros(512, dtype=torch.uint8, pin_memory=True)
    where, kept = [], []
    with ThreadPoolExecutor(READERS, "strata-arena") as readers:
        for moe in layers:
            matrices = [check_experts(m).raw for m in (moe.gate, moe.up, moe.down)]
            room = _Pinned(sum(-(-m.nbytes // 512) * 512 for m in matrices))
            kept.append(room)
            at, jobs, starts = 0, [], []
            for raw in matrices:
                flat = raw.reshape(-1)
                target = room.memory[at : at + len(flat)]
                jobs += [
                    readers.submit(np.copyto, target[i : i + SHARE], flat[i : i + SHARE])
                    for i in range(0, len(flat), SHARE)
                ]
                starts.append(room.memory.ctypes.data + at + raw[0].nbytes * np.arange(len(raw), dtype=np.int64))
                at += -(-len(flat) // 512) * 512
            for job in jobs:
                job.result()
            if on_bytes:
                on_bytes(sum(m.nbytes for m in matrices))
            where.append(np.stack(starts, axis=1))
    return Ram(np.stack(where), base, kept)


def stocked(stock: Stock, *, on_gpu: bool = True) -> Ram:
    """A part of the experts, in memory that a GPU reaches.

    Raises:
        FormatError: experts in the file do not begin at multiples of 16 bytes, as the GPU reads them.
        TierError: the system does not lock so much memory.
    """
    odd = [place for parts in stock.layers for part in parts for place in (part.offset, part.step) if place % 16]
    if odd:
        raise FormatError(
            f"experts of this file begin at byte {odd[0]}, but a GPU reads them at multiples of 16; put all into RAM "
            "(a larger --ram), or use --device cpu"
        )
    base = torch.zeros(512, dtype=torch.uint8, pin_memory=on_gpu)
    cuts = stock.region.address + np.arange(PIECE, len(stock.region), PIECE, dtype=np.int64)
    return Ram(stock.addresses, base, _Locks(stock.region.array) if on_gpu else None, stock, cuts)


class _Locks:
    """A region that is locked and known to the GPU piece by piece, until nobody holds it any more."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        runtime: Any = torch.cuda.cudart()
        self._locked = _Locked(runtime, memory)
        for first in range(0, len(memory), PIECE):
            some = memory[first : first + PIECE]
            status = int(runtime.cudaHostRegister(some.ctypes.data, some.nbytes, _PORTABLE))
            if status:
                self._locked.free()
                _forget_error()
                raise TierError(
                    f"of {len(memory)} bytes of RAM for experts only {first} could be locked for the GPU "
                    f"(cudaHostRegister: {status}); give experts less RAM (--ram), raise the limit of locked memory "
                    "(ulimit -l), or use --device cpu"
                )
            self._locked.ranges.append(some.ctypes.data)


class _Pinned:
    """Memory of the process that is locked and known to the GPU, until nobody holds it any more."""

    def __init__(self, size: int) -> None:
        whole = np.empty(size + 4096, np.uint8)
        start = -whole.ctypes.data % 4096
        self.memory = whole[start : start + size]
        self._whole = whole
        self._runtime: Any = torch.cuda.cudart()  # which cannot be imported any more when the process ends
        status = int(self._runtime.cudaHostRegister(self.memory.ctypes.data, size, _PORTABLE))
        if status:
            self._whole = None  # type: ignore[assignment]
            raise TierError(
                f"{size} bytes of RAM for experts could not be locked for the GPU (cudaHostRegister: {status}); "
                "free memory, raise the limit of locked memory (ulimit -l), or use --device cpu"
            )

    def __del__(self) -> None:
        """Let the GPU forget it before the memory goes."""
        if self._whole is not None:
            self._runtime.cudaHostUnregister(self.memory.ctypes.data)
