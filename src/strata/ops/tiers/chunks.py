"""Memory in chunks that come and go behind addresses that stay: what slots lie in, so that some can be given back.

A range of addresses is reserved once, for as many slots as there could ever be; that takes no memory. Chunks of memory
are put behind its beginning, and taken away from its end. Captured graphs hold addresses, and so they hold whatever
lies behind them now.
"""

import mmap
from typing import Any, Protocol

import torch
from torch import Tensor


class Chunks(Protocol):
    """Memory of a device.

    Attributes:
        size: bytes of a chunk.
    """

    size: int

    def free(self) -> int:
        """Bytes that could be taken now."""
        ...

    def reserve(self, nbytes: int) -> int:
        """Addresses, with nothing behind them; returns the first."""
        ...

    def take(self) -> Any:
        """A chunk.

        Raises:
            torch.OutOfMemoryError: there is none.
        """
        ...

    def drop(self, chunk: Any) -> None:
        """A chunk that lies behind no address is the system's again."""
        ...

    def put(self, address: int, chunk: Any) -> None:
        """Put a chunk behind an address."""
        ...

    def lift(self, address: int) -> None:
        """Take a chunk away from behind an address; nothing may be reading it."""
        ...

    def tensor(self, address: int, nbytes: int, owner: object) -> Tensor:
        """``uint8 [nbytes]`` from a reserved address on, behind which there is a chunk; further ones need have none.

        The owner lives as long as any tensor there.
        """
        ...

    def end(self, address: int, nbytes: int, chunks: list[Any]) -> None:
        """Give reserved addresses back, with the chunks behind their beginning; no tensor lies there any more."""
        ...


class HostChunks:
    """The same in a process's own memory, for the interpreter: what was taken away reads as zeros.

    Args:
        most: chunks that there are.
    """

    def __init__(self, most: int = 1 << 40) -> None:
        self.size = mmap.PAGESIZE
        self.most, self.taken = most, 0
        self._ranges: dict[int, tuple[mmap.mmap, Tensor]] = {}

    def free(self) -> int:
        """See `Chunks.free`."""
        return (self.most - self.taken) * self.size

    def reserve(self, nbytes: int) -> int:
        """See `Chunks.reserve`."""
        memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        self._ranges[whole.data_ptr()] = memory, whole
        return whole.data_ptr()

    def take(self) -> object:
        """See `Chunks.take`."""
        if self.taken >= self.most:
            raise torch.OutOfMemoryError(f"all {self.most} chunks are taken")
        self.taken += 1
        return object()

    def drop(self, chunk: object) -> None:  # noqa: ARG002  # they are all the same
        """See `Chunks.drop`."""
        self.taken -= 1

    def put(self, address: int, chunk: object) -> None:
        """See `Chunks.put`; the system does it at the first touch."""

    def lift(self, address: int) -> None:
        """See `Chunks.lift`."""
        first, (memory, whole) = next(
            (first, held) for first, held in self._ranges.items() if first <= address < first + len(held[1])
        )
        assert whole.data_ptr() == first
        memory.madvise(mmap.MADV_DONTNEED, address - first, self.size)

    def tensor(self, address: int, nbytes: int, owner: object) -> Tensor:  # noqa: ARG002  # the memory is its own owner
        """See `Chunks.tensor`."""
        return self._ranges[address][1][:nbytes]

    def end(self, address: int, nbytes: int, chunks: list[object]) -> None:  # noqa: ARG002  # the whole range
        """See `Chunks.end`; the system has the memory back when no tensor lies there any more."""
        del self._ranges[address]
        self.taken -= len(chunks)
