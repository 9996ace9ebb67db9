"""Pinned memory of the host for what is kept of conversations: a GPU copies from and to it at the link's full rate.

From ordinary memory a copy goes through pinned pieces, so everything is read twice, which takes about three times as
long. Pinning takes time, some 0.1 to 0.2 s a GB (estimated), so a block that is free is kept for the next content of
about its size: checkpoints all have one size, and so have the rows of whole passes.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.memory.arena import Region
from strata.memory.arena.region import HUGE
from strata.memory.errors import ScarceError
from strata.ops.gpu.pinned import Pinned

log = logging.getLogger("strata.gpu")

SMALL = 256 << 10
"""Bytes; less is not worth a call of the driver, and lies in ordinary memory."""

LARGE = 16 << 20
"""Blocks from here on have whole huge pages, fewer bytes whole `GRAIN`."""

GRAIN = 64 << 10

WASTE = 8
"""A free block serves contents that leave at most one part in so many of it unused."""


class Block:
    """Memory of its own, pinned when `pin` was called, if the driver does that.

    Args:
        nbytes: a multiple of pages.
        runtime: the driver's functions; None for torch's.

    Raises:
        ScarceError: the system does not give so much.
    """

    def __init__(self, nbytes: int, runtime: Any) -> None:
        self.nbytes = nbytes
        self.pinned: Pinned | None = None
        self._runtime = runtime
        self._region = Region(nbytes, huge=nbytes >= LARGE)

    def __del__(self) -> None:
        """Unpin before the memory goes."""
        pinned = getattr(self, "pinned", None)
        if pinned is not None:
            pinned.close()

    def pin(self) -> int:
        """Pin it once; returns the driver's number for why it is not."""
        if self.pinned is None:
            self.pinned = Pinned(torch.from_numpy(self._region.array), [(0, self.nbytes)], self._runtime)
        return self.pinned.refused[0].error if self.pinned.refused else 0

    def lend(self) -> NDArray[np.uint8]:
        """The memory as an array of its own: when that is gone, nobody uses the block."""
        return self._region.array[:]


class Blocks:
    """`strata.model.memory.Memory` that a GPU reaches. Not for use from several threads, but for `ready` and freeing.

    Where pinning is refused one warning says so, and memory is ordinary from then on.

    Args:
        runtime: the driver's functions; None for torch's.
        mark: returns an event that is behind all that was launched so far; None for torch's.

    Attributes:
        lent: bytes of blocks that are in use, for all that is known; what became free since `tidy` is among it.
        free: blocks that nobody uses, the longest unused first.
    """

    def __init__(self, runtime: Any = None, mark: Callable[[], Any] | None = None) -> None:
        self.lent = 0
        self.free: list[Block] = []
        self._runtime = runtime
        self._mark = mark or _mark
        self._limit = 0
        self._refused = False
        self._blocks: dict[int, Block] = {}  # those that are lent, by address
        self._back: deque[int] = deque()  # addresses, from whatever thread drops the last reference
        self._held: deque[tuple[Any, Sequence[Tensor]]] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self.lent + sum(block.nbytes for block in self.free)

    def empty(self, nbytes: int, *, later: bool = False) -> Tensor:
        """See `Memory.empty`. Its storage is the whole block, so that who counts memory counts all of it."""
        self.tidy()
        block = None if nbytes < SMALL or self._refused else self._known(nbytes) or self._new(nbytes)
        if block is None:
            return torch.empty(nbytes, dtype=torch.uint8)
        if not later:
            self._pin(block)
        self.lent += block.nbytes
        loan = block.lend()
        address = loan.ctypes.data
        self._blocks[address] = block
        finalize(loan, self._back.append, address).atexit = False
        return torch.from_numpy(loan)[:nbytes]

    def ready(self, memory: Tensor) -> None:
        """Pin it."""
        block = self._blocks.get(memory.untyped_storage().data_ptr())
        if block is not None:
            self._pin(block)

    def hold(self, tensors: Sequence[Tensor]) -> None:
        """Keep tensors until the device has done all that was launched so far."""
        self._held.append((self._mark(), tensors))

    def keep_within(self, nbytes: int) -> None:
        """See `Memory.keep_within`."""
        self._limit = nbytes

    def tidy(self) -> None:
        """Unpin the longest unused of the free blocks until all together are within the limit."""
        while self._held and self._held[0][0].query():
            self._held.popleft()
        while self._back:
            block = self._blocks.pop(self._back.popleft())
            self.lent -= block.nbytes
            self.free.append(block)
        while self.free and self.nbytes > self._limit:
            del self.free[0]

    def _known(self, nbytes: int) -> Block | None:
        """The smallest free block that will do."""
        fitting = [
            block for block in self.free if nbytes <= block.nbytes <= max(_grains(nbytes), nbytes + nbytes // WASTE)
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda block: block.nbytes)
        self.free.remove(best)
        return best

    def _new(self, nbytes: int) -> Block | None:
        """One more; free ones make room for it."""
        size = _grains(nbytes)
        while self.free and self.nbytes + size > self._limit:
            del self.free[0]
        try:
            return Block(size, self._runtime)
        except ScarceError as error:
            self._refuse(str(error))
            return None

    def _pin(self, block: Block) -> None:
        error = block.pin()
        if error:
            self._refuse(f"the driver does not pin {block.nbytes} bytes more (cudaHostRegister: {error})")

    def _refuse(self, why: str) -> None:
        if not self._refused:
            self._refused = True
            log.warning(
                "%s; what is kept of conversations lies in ordinary memory from now on, from where it comes back about "
                "three times as slowly; keep less (--cache-ram) or raise the limit of locked memory (ulimit -l)", why,
            )  # fmt: skip


def _grains(nbytes: int) -> int:
    """The size of a new block."""
    grain = HUGE if nbytes >= LARGE else GRAIN
    return -(-nbytes // grain) * grain


def _mark() -> Any:
    event = torch.cuda.Event()
    event.record()
    return event
