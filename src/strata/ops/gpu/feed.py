"""Bytes of a mapped file to a device: threads fill pinned pieces, which cross the link while the next are filled."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE = 64 << 20
"""Bytes that cross the link at once."""

PIECES = 3
"""Pinned pieces: one is filled while the others cross."""

SHARE = 4 << 20
"""Bytes a thread copies at a time."""

MOST_THREADS = 16


class Feed:
    """Brings bytes to a device, in order; a context manager, for it has threads.

    Args:
        device: where to.
        on_bytes: called with the number of bytes that are on their way, after each piece.
        threads: that read; None for as many as help.
    """

    def __init__(
        self, device: torch.device, on_bytes: Callable[[int], None] | None = None, *, threads: int | None = None
    ) -> None:
        self._device = device
        self._on_bytes = on_bytes or (lambda _: None)
        count = threads or max(1, min(MOST_THREADS, len(os.sched_getaffinity(0))))
        self._readers = ThreadPoolExecutor(count, "strata-reader") if device.type != "cpu" else None
        self._pinned: list[tuple[Tensor, Any]] = []
        self._turn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._readers:
            self._readers.shutdown(cancel_futures=True)
            if error is None:
                torch.cuda.synchronize(self._device)
        self._pinned = []

    def whole(self, raw: NDArray[np.uint8]) -> Tensor:
        """All of an array: uint8 of its shape, on the device."""
        flat = raw.reshape(-1)
        if len(flat) <= PIECE:
            return self._sent(self._read(flat)).view(raw.shape)
        out = torch.empty(flat.shape, dtype=torch.uint8, device=self._device)
        for first, piece in self._ahead(flat, PIECE):
            out[first : first + len(piece)] = piece
        return out.view(raw.shape)

    def pieces(self, raw: NDArray[np.uint8]) -> Iterator[tuple[int, Tensor]]:
        """An array by pieces of its first axis: where each begins, and its bytes on the device."""
        size = max(1, raw[:1].nbytes)
        if size > PIECE:
            yield from ((first, self.whole(raw[first : first + 1])) for first in range(len(raw)))
            return
        step = PIECE // size
        for at, piece in self._ahead(raw.reshape(-1), step * size):
            yield at // size, piece.view(-1, *raw.shape[1:])

    def _ahead(self, flat: NDArray[np.uint8], size: int) -> Iterator[tuple[int, Tensor]]:
        """Pieces of so many bytes; the next is being read while one is used."""
        coming = self._read(flat[:size])
        for first in range(0, len(flat), size):
            here, coming = coming, self._read(flat[first + size : first + 2 * size])
            yield first, self._sent(here)

    def _read(self, flat: NDArray[np.uint8]) -> "_Coming":
        """Begin to read up to a piece."""
        if self._readers is None or not len(flat):
            return _Coming(flat, None, [])
        if len(self._pinned) < PIECES:
            self._pinned.append((torch.empty(PIECE, dtype=torch.uint8, pin_memory=True), torch.cuda.Event()))
        staged, crossed = self._pinned[self._turn % len(self._pinned)]
        crossed.synchronize()  # what the piece held before has gone
        self._turn += 1
        target = staged.numpy()
        jobs = [
            self._readers.submit(np.copyto, target[at : min(at + SHARE, len(flat))], flat[at : at + SHARE])
            for at in range(0, len(flat), SHARE)
        ]
        return _Coming(flat, (staged, crossed), jobs)

    def _sent(self, coming: "_Coming") -> Tensor:
        """What was read, on its way across the link."""
        count = len(coming.flat)
        for job in coming.jobs:
            job.result()
        self._on_bytes(count)
        if coming.pinned is None:
            return torch.from_numpy(coming.flat.copy()).to(self._device)
        staged, crossed = coming.pinned
        here = staged[:count].to(self._device, non_blocking=True)
        crossed.record(torch.cuda.current_stream(self._device))
        return here


class _Coming(NamedTuple):
    """A piece that threads are reading into pinned memory."""

    flat: NDArray[np.uint8]
    pinned: tuple[Tensor, Any] | None
    jobs: list[Future[None]]
