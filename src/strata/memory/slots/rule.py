"""When an expert is worth a slot: the numbers of the adaptive rule."""

import math
from dataclasses import dataclass

from strata.memory.slots.errors import SlotError


@dataclass(frozen=True, slots=True)
class Rule:
    """Parameters, measured in docs/cache.md.

    A visit counts 1 in the window it happens in, and `decay` times as much with every window after. A second count
    fades by `slow`, and `share` of it is added. A newcomer takes a slot if its count is at least `margin` above the
    count of whoever lies there.

    Attributes:
        decay: of the quick count, for one window; 0 counts the newest window only.
        slow: of the slow count, for one window.
        share: how much of the slow count is added; 0 for none.
        margin: visits a newcomer has to be ahead by, so that two equals do not change places for ever.

    Raises:
        SlotError: a value is out of range.
    """

    decay: float = 0.98
    slow: float = 0.998
    share: float = 0.05
    margin: float = 2.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("decay", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise SlotError(f"{name} of the adaptive rule must be from 0 to 1, not {getattr(self, name)!r}")
        for name in ("share", "margin"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SlotError(f"{name} of the adaptive rule must be 0 or more, not {value!r}")


def moves_that_fit(size: int, link: float, window: float, share: float = 0.1) -> int:
    """Moves a window may make so that copies take no more than `share` of the link's time; at least one.

    The link is shared with misses that are read over it, and a copy delays them. At 25 GB/s and 12 ms a tenth is 17
    experts of 1.75 MB or 7 of 4 MB.

    Args:
        size: bytes of an expert; the largest, where sizes differ.
        link: bytes per second, as measured.
        window: seconds between two windows.
        share: of the link's time, from 0 to 1.

    Raises:
        SlotError: a value makes no sense.
    """
    if not (size > 0 and link > 0 and window > 0 and 0 <= share <= 1):
        raise SlotError(f"no moves fit experts of {size} bytes, {link} bytes/s, {window} s and a share of {share}")
    return max(1, int(link * window * share / size))
