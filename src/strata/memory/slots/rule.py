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

    decay: float = 0.97
    slow: float = 0.999
    share: float = 0.05
    margin: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("decay", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise SlotError(f"{name} of the adaptive rule must be from 0 to 1, not {getattr(self, name)!r}")
        for name in ("share", "margin"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SlotError(f"{name} of the adaptive rule must be 0 or more, not {value!r}")
