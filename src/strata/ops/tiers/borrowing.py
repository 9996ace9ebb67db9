"""Memory of a tier's slots that long prompts have meanwhile: whole slots when nothing is borrowed, and what is."""

import logging
from typing import TYPE_CHECKING

import torch

from strata.errors import RoomError
from strata.memory.budget.least import HELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from strata.ops.tiers.tier import Tier

log = logging.getLogger("strata.ops")

PART = 2
"""Of the bytes of slots, one in so many is borrowed at most; as plans have it."""


class Borrowing:
    """What of a tier's slots is borrowed. All of it happens between passes.

    Args:
        tier: whose slots.
        device: where they are.

    Attributes:
        nbytes: borrowed now.
        returning: called before it becomes slots again, and whoever has it lets go of it.
    """

    def __init__(self, tier: "Tier", device: torch.device) -> None:
        self._tier, self._device = tier, device
        self.nbytes = 0
        self.returning: Callable[[], None] = lambda: None
        self._whole: tuple[int, ...] | None = None  # slots, when nothing is borrowed
        self._missed = False  # some of them do not come back

    @property
    def most(self) -> int:
        """Bytes that there may be; none where RAM has no places for whose slots they are."""
        tier = self._tier
        if tier.supply is not None and min(tier.supply.stock.counts) < max(HELD, tier.host.mailbox.topk):
            return 0
        if getattr(tier.cache, "gather", None) is None:  # it never gives anything up
            return 0
        return (tier.room.beside + self.nbytes) // PART

    def take(self, nbytes: int) -> None:
        """So much memory of slots, with what is borrowed already, is the system's until `give_back`.

        What counted least was there, and is a miss from the next pass on.

        Raises:
            RoomError: slots do not have so much; nothing has changed.
            TierError: the system cannot take slots away.
        """
        self._tier.prompted()
        if nbytes <= self.nbytes:
            return
        room = self._tier.room
        whole, before = self._whole or room.slots, room.nbytes
        self._tier.set_slots(room.without(room.slots, nbytes - self.nbytes))
        self._whole = whole
        self.nbytes += before - room.nbytes

    def give_back(self) -> None:
        """What was borrowed is slots again, empty ones; as many as there is memory for.

        Where it cannot be had, for something else has taken it, the rest is borrowed still.
        """
        whole, room = self._whole, self._tier.room
        if whole is None:
            return
        self._tier.prompted()  # what does not come back is tried again as if a prompt had just been read
        self.let_go()
        lacking, slots = self.nbytes - room.free(), whole
        try:
            if lacking > 0:
                fewer = room.without(whole, lacking + room.waste)
                slots = tuple(map(max, fewer, room.slots))
            before = room.nbytes
            self._tier.set_slots(slots)
            self.nbytes -= room.nbytes - before
        except RoomError as error:
            slots = room.slots
            log.debug("what a long prompt has borrowed cannot be had back: %s", error)
        if slots == whole:
            self.end()
        elif not self._missed:
            self._missed = True
            log.warning(
                "%d slots of experts that a long prompt had borrowed do not come back, for something else has taken "
                "their memory; it is tried again", sum(whole) - sum(slots),
            )  # fmt: skip

    def let_go(self) -> None:
        """Whoever has what is borrowed gives it up, and nothing that was launched is at it."""
        if self._whole is not None:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self.returning()

    def end(self) -> None:
        """Nothing is borrowed any more: slots are as many as somebody has said."""
        self._whole, self.nbytes, self._missed = None, 0, False
