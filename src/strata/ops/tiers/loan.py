"""What long passes over prompts take beyond what is there all the time: memory of slots, for a while."""

import logging
from bisect import bisect_right
from collections.abc import Callable

from strata.errors import RoomError, TierError
from strata.ops.gpu.size import ROOM
from strata.ops.tiers.tier import Tier

log = logging.getLogger("strata.ops")

STEP = 64
"""Passes that are shorter than was wished are multiples of it."""


class Loan:
    """Memory of slots that is torch's while long prompts are read.

    Args:
        tier: whose slots.
        short: rows of the longest pass that has its memory all the time.
        most: rows of the longest.
        bytes_of: what a pass of so many rows takes; more rows never take less.
        ring: bytes of a ring for long passes, if there are so many; 0 without one.

    Attributes:
        wide: whether the pass that begins has the memory of that ring.
        drop: gives up that ring.
        forget: gives up whatever else was made in borrowed memory.
    """

    def __init__(self, tier: Tier, short: int, most: int, bytes_of: Callable[[int], int], *, ring: int = 0) -> None:
        self._from, self._short, self._most = tier.borrowing, short, most
        self._bytes_of, self._ring = bytes_of, ring
        self._able = True
        self._told = most  # rows of the longest that somebody has heard of
        self.wide = False
        self.drop: Callable[[], None] = _nothing
        self.forget: Callable[[], None] = _nothing
        self._from.returning = self._returned

    def ready(self, rows: int) -> int:
        """Have memory for a pass of so many rows.

        Returns:
            For how many there is; the next one may have no more.
        """
        self.wide = False
        if rows <= self._short:
            return rows
        may = self._from.most if self._able else 0
        wished, rows = rows, self._fitting(rows, may)
        if self._able and rows < min(wished, self._told):
            log.warning("passes over prompts have %d tokens at most now, for experts lend %d bytes of slots", rows, may)
            self._told = rows
        need = self._beyond(rows)
        wide = self._ring > 0 and need + self._ring <= may
        try:
            self._from.take(need + self._ring * wide)
        except (RoomError, TierError) as error:
            self._cannot(str(error))
            return min(rows, self._short)
        self.wide = wide and rows > self._short
        return rows

    def shorten(self, rows: int, why: str) -> bool:
        """A pass of so many rows has found no memory: passes are short until slots have theirs back.

        Returns:
            False if it was short already.
        """
        if rows <= self._short:
            return False
        self._cannot(why)
        return True

    def _cannot(self, why: str) -> None:
        if self._able:
            log.warning("passes over prompts have %d tokens at most now, for memory is short: %s", self._short, why)
        self._able = self.wide = False

    def _returned(self) -> None:
        self._able, self.wide = True, False
        self.drop()
        self.forget()

    def _beyond(self, rows: int) -> int:
        if rows <= self._short:
            return 0
        made = min(max(rows, self._most), -(-rows // ROOM) * ROOM)  # as `Prompt` makes room
        return max(0, self._bytes_of(made) - self._bytes_of(self._short))

    def _fitting(self, rows: int, may: int) -> int:
        if self._beyond(rows) <= may:
            return rows
        lengths = range(self._short, rows, STEP)
        return lengths[bisect_right(lengths, may, key=self._beyond) - 1]


def _nothing() -> None:
    """There is none."""
