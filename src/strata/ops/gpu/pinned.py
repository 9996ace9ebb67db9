"""Memory of the host that a GPU copies from at full speed, and reads itself: registered with the driver in slices.

`strata.memory` knows no torch, so whoever has both does this. Registering locks the pages, takes the driver a while (a
second for some gigabytes) and may be refused for part of them, by the system's limit of locked memory or by the
driver's own: then the slices that were refused stay as they are, and only they are slow.
"""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

PORTABLE, MAPPED = 1, 2


class Refused(NamedTuple):
    """A slice that is not registered: first byte, number of bytes, and the driver's number for why."""

    first: int
    nbytes: int
    error: int


class Pinned:
    """A run of memory, some of whose slices are registered.

    Args:
        memory: uint8, kept by the caller until `close`.
        slices: first byte and number of bytes of each; none may share a page.
        runtime: the driver's functions; None for torch's.

    Attributes:
        registered: the slices that are.
        refused: the others.
    """

    def __init__(self, memory: Tensor, slices: Sequence[tuple[int, int]], runtime: Any = None) -> None:
        self._runtime = torch.cuda.cudart() if runtime is None else runtime
        self._memory = memory
        self.registered: list[tuple[int, int]] = []
        self.refused: list[Refused] = []
        try:
            for first, nbytes in slices:
                error = int(self._runtime.cudaHostRegister(memory.data_ptr() + first, nbytes, PORTABLE | MAPPED))
                if error:
                    if runtime is None:
                        _forget_error()
                    self.refused.append(Refused(first, nbytes, error))
                else:
                    self.registered.append((first, nbytes))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes that are registered."""
        return sum(nbytes for _, nbytes in self.registered)

    def holds(self, first: int, nbytes: int) -> bool:
        """Whether a run of bytes lies in one registered slice."""
        return any(at <= first and first + nbytes <= at + size for at, size in self.registered)

    def close(self) -> None:
        """Undo it. The device must be done with the memory."""
        for first, _ in self.registered:
            self._runtime.cudaHostUnregister(self._memory.data_ptr() + first)
        self.registered = []


def _forget_error() -> None:
    """A refused call leaves an error that the next launch would take for its own."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda").add_(1)
