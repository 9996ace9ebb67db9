"""The memory that a GPU and the host share while a window misses experts: words, one message, and rows that come back.

All of it is one run of bytes in memory that both reach (pinned on a machine with a GPU). It is reused for every layer
of every window: the device raises the next message only when it is done with the rows of the last one.

Words are 64 bits wide, each on lines of its own, and each has one writer:

| word | written by | what it says |
|---|---|---|
| RUNG | device | number of the newest message; everything of it was written before |
| DONE | host | number of the newest message that has been answered, its rows written before; `BROKEN`: nobody answers |
| ABORT | host | why nobody does; one of the codes below |
| GAVE_UP | device | number of the message whose answer it stopped waiting for |

Numbers of messages rise and are never used again: with 64 bits they do not come round.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RUNG, DONE, ABORT, GAVE_UP = range(0, 4 * 128, 128)

HEADER = 512
"""Where the message begins: int32 layer, rows, experts, and how many of the window's experts were missing in all."""

LAYER, ROWS, COUNT, MISSING = range(4)

_LISTS = 576

MOST_ROWS = 8
"""Rows of a window; also the places for the pairs of an expert."""

# Codes of ABORT, and of the loop that serves.
FINE, LOST, BAD_MESSAGE, FAILED_ITEM, CLOSED, ENDED, UNREAD = 0, -1, 1, 2, 3, 4, 5

BROKEN = 1 << 62
"""What DONE is where there will be no answer; above all numbers, so whoever waits goes on."""

_LINE = 512


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Where things lie for windows of up to eight rows.

    Attributes:
        topk: experts a row chooses.
        hidden: H.
    """

    topk: int
    hidden: int

    @property
    def pairs(self) -> int:
        """Most pairs of row and expert, numbered row by row."""
        return MOST_ROWS * self.topk

    @property
    def experts(self) -> int:
        """Offset of the missing experts' numbers, ``int32 [pairs]``."""
        return _LISTS

    @property
    def counts(self) -> int:
        """Offset of how many pairs each has, ``int32 [pairs]``."""
        return _up(self.experts + 4 * self.pairs)

    @property
    def numbers(self) -> int:
        """Offset of those pairs' numbers, ``int32 [pairs, 8]``."""
        return _up(self.counts + 4 * self.pairs)

    @property
    def codes(self) -> int:
        """Offset of the rows in eight bits, ``int8 [8, 2, H / 32, 16]``: halves of blocks as the device has them."""
        return _up(self.numbers + 4 * MOST_ROWS * self.pairs)

    @property
    def scales(self) -> int:
        """Offset of their scales, ``float32 [8, H / 32]``."""
        return _up(self.codes + MOST_ROWS * self.hidden)

    @property
    def results(self) -> int:
        """Offset of what comes back, ``float32 [pairs, H]``: the row of each pair in its place."""
        return _up(self.scales + MOST_ROWS * self.hidden // 8)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.results + 4 * self.pairs * self.hidden

    def words(self, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
        """RUNG, DONE, ABORT and GAVE_UP, for whoever looks on: ``int64 [4]``, a view."""
        return memory[:512].view(np.int64)[::16]

    def view(self, memory: NDArray[np.uint8], at: int, kind: Any, *shape: int) -> NDArray[Any]:
        """One part as an array."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        return memory[at : at + size].view(kind).reshape(shape)


def _up(at: int) -> int:
    return -(-at // _LINE) * _LINE
