"""The memory that slots lie in: an array for each class, whose end can go and come again."""

import logging
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from strata.errors import RoomError, TierError
from strata.ops.tiers.chunks import Chunks, HostChunks
from strata.ops.tiers.cuda import CudaChunks

log = logging.getLogger("strata.ops")


class SlotRoom:
    """Arrays of slots, as long as somebody says. Their addresses never change.

    Args:
        chunks: memory.
        sizes: bytes of a slot, by class.
        most: slots that there may ever be, by class.
        slots: how many there are, by class.

    Attributes:
        arrays: ``uint8 [most, bytes of a slot]`` of each class; only the first slots may be touched.
        slots: how many, by class.

    Raises:
        torch.OutOfMemoryError: there is not so much memory.
    """

    def __init__(self, chunks: Chunks, sizes: Sequence[int], most: Sequence[int], slots: Sequence[int]) -> None:
        self._chunks, self._sizes, self._most = chunks, tuple(sizes), tuple(most)
        self._long = [self._count(size, each) * chunks.size for size, each in zip(sizes, most, strict=True)]
        self._starts = [chunks.reserve(nbytes) for nbytes in self._long]
        self._held: list[list[Any]] = [[] for _ in sizes]
        owner = _Owner()  # of the memory; tensors there keep it, whoever has them
        weakref.finalize(owner, _release, chunks, self._starts, self._long, self._held).atexit = False
        self._owner = owner
        self.slots: tuple[int, ...] = (0,) * len(self._sizes)
        self._set(tuple(slots), spare=0)
        self.arrays = [
            chunks.tensor(start, each * size, owner).view(each, size)
            for start, each, size in zip(self._starts, most, sizes, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return sum(map(len, self._held)) * self._chunks.size

    @property
    def beside(self) -> int:
        """Of that, bytes that torch does not know of."""
        return self.nbytes

    @property
    def waste(self) -> int:
        """Bytes that it may take beyond those of its slots."""
        return len(self._sizes) * self._chunks.size

    def free(self) -> int:
        """Bytes that it could take beyond what it has."""
        return self._chunks.free()

    def without(self, slots: Sequence[int], nbytes: int) -> tuple[int, ...]:
        """As many slots as so many bytes less hold: each class gives the same share of its memory.

        Args:
            slots: by class.
            nbytes: to be given at least, of the memory that these slots take.

        Raises:
            RoomError: they do not take so much.
        """
        held = [self._count(size, each) for size, each in zip(self._sizes, slots, strict=True)]
        left, spare = -(-nbytes // self._chunks.size), sum(held) - len(held)
        if left > spare:
            raise RoomError(f"{tuple(slots)} slots do not hold {nbytes:,} bytes that could be given away")
        found = []
        for size, each, count in zip(self._sizes, slots, held, strict=True):
            gives = -(-left * (count - 1) // max(1, spare))  # the first ones a little more, the last one what is left
            left, spare = left - gives, spare - (count - 1)
            found.append(min(each, (count - gives) * self._chunks.size // size) if gives else each)
        return tuple(found)

    def set(self, slots: Sequence[int], before: Any = None, spare: int = 0) -> None:
        """Another number of slots.

        Args:
            slots: by class.
            before: called when all memory that is needed is there, and before any is taken away: from then on nobody
                may read slots that go.
            spare: bytes that must stay free.

        Raises:
            RoomError: there is not so much memory; nothing has changed.
            TierError: there can never be so many.
        """
        self._check(slots)
        try:
            self._set(tuple(slots), spare=spare, before=before)
        except torch.OutOfMemoryError as error:
            text = f"{tuple(slots)} slots need {self._need(slots):,} bytes more than there are now: {error}"
            raise RoomError(text) from error

    def _set(self, slots: tuple[int, ...], *, spare: int, before: Any = None) -> None:
        wanted = [self._count(size, each) for size, each in zip(self._sizes, slots, strict=True)]
        fresh = self._taken(sum(wanted) - sum(map(len, self._held)), spare)
        if before is not None:
            before()
        for start, held, count in zip(self._starts, self._held, wanted, strict=True):
            while len(held) > count:
                self._chunks.lift(start + (len(held) - 1) * self._chunks.size)
                fresh.append(held.pop())
        for start, held, count in zip(self._starts, self._held, wanted, strict=True):
            while len(held) < count:
                self._chunks.put(start + len(held) * self._chunks.size, fresh[-1])
                held.append(fresh.pop())
        for chunk in fresh:
            self._chunks.drop(chunk)
        self.slots = slots

    def _taken(self, count: int, spare: int) -> list[Any]:
        """So many chunks more than there are, and as many bytes left.

        Raises:
            torch.OutOfMemoryError: there are not so many; none is taken.
        """
        if count <= 0:
            return []
        need, free = count * self._chunks.size, self._chunks.free() - spare
        if need > free:
            raise torch.OutOfMemoryError(f"{max(0, free):,} bytes are free for slots, not {need:,}")
        found: list[Any] = []
        try:
            while len(found) < count:
                found.append(self._chunks.take())
        except BaseException:
            for chunk in found:
                self._chunks.drop(chunk)
            raise
        return found

    def _need(self, slots: Sequence[int]) -> int:
        wanted = sum(self._count(size, each) for size, each in zip(self._sizes, slots, strict=True))
        return wanted * self._chunks.size - self.nbytes

    def _count(self, size: int, slots: int) -> int:
        """Chunks of a class; one at least, for a tensor of torch lies somewhere."""
        return max(1, -(-size * slots // self._chunks.size))

    def _check(self, slots: Sequence[int]) -> None:
        if len(slots) != len(self._most) or any(not 0 <= n <= most for n, most in zip(slots, self._most, strict=True)):
            raise TierError(f"classes of up to {self._most} slots cannot have {tuple(slots)}")


class FixedRoom:
    """The same in memory that torch has, where the system can do no better: as many slots as at the start."""

    waste = beside = 0

    def __init__(self, sizes: Sequence[int], slots: Sequence[int], device: torch.device, why: str) -> None:
        self.slots = tuple(slots)
        self.arrays: list[Tensor] = [
            torch.zeros((each, size), dtype=torch.uint8, device=device) for each, size in zip(slots, sizes, strict=True)
        ]
        self._why = why

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return sum(array.numel() for array in self.arrays)

    def free(self) -> int:
        """See `SlotRoom.free`."""
        return 0

    def without(self, slots: Sequence[int], nbytes: int) -> tuple[int, ...]:  # noqa: ARG002  # as the other
        """See `SlotRoom.without`.

        Raises:
            TierError: always.
        """
        raise TierError(f"slots cannot be lent here: {self._why}")

    def set(self, slots: Sequence[int], before: Any = None, spare: int = 0) -> None:  # noqa: ARG002  # as the other
        """See `SlotRoom.set`.

        Raises:
            TierError: always.
        """
        raise TierError(f"the number of slots cannot be changed here: {self._why}; restart with another --vram")


def room(
    sizes: Sequence[int], most: Sequence[int], slots: Sequence[int], device: torch.device
) -> "SlotRoom | FixedRoom":
    """Memory for slots on a device.

    Args:
        sizes: bytes of a slot, by class.
        most: slots that there may ever be, by class.
        slots: how many there are, by class.
        device: where.

    Raises:
        torch.OutOfMemoryError: there is not so much.
    """
    if device.type != "cuda":
        return SlotRoom(HostChunks(), sizes, most, slots)
    try:
        chunks = CudaChunks(device)
    except TierError as error:
        log.warning("slots for experts cannot be given back or lent to long prompts while the model runs: %s", error)
        return FixedRoom(sizes, slots, device, str(error))
    return SlotRoom(chunks, sizes, most, slots)


def lends(device: torch.device) -> bool:
    """Whether slots of a device can be taken away and come again while a model runs; plans ask before there are any."""
    try:
        return device.type != "cuda" or CudaChunks(device).size > 0
    except TierError:
        return False


class _Owner:
    """Whose end is the end of the memory."""


def _release(chunks: Chunks, starts: list[int], lengths: list[int], held: list[list[Any]]) -> None:
    """All memory is the system's again."""
    for start, nbytes, some in zip(starts, lengths, held, strict=True):
        chunks.end(start, nbytes, some)
