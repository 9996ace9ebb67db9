"""What was published of real routing, and under which rule each number was taken."""

from typing import NamedTuple


class Published(NamedTuple):
    """One published hit rate.

    Attributes:
        share: of all experts that were in VRAM.
        low: of the hit rates reported.
        high: of them.
        policy: the rule here that is the one it was taken with.
        source: where it is from.
    """

    share: float
    low: float
    high: float
    policy: str
    source: str


HITS = (
    Published(2870 / 24576, 0.56, 0.62, "tiered", "RTX 3090 with 10 GiB given away, IQ3_S, 2,870 slots, adaptive tier"),
    Published(
        4105 / 24576, 0.61, 0.68, "static", "4,105 slots, a profile of other texts (held out), 0.6447 on average"
    ),
    Published(7935 / 24576, 0.828, 0.903, "tiered", "RTX 3090, IQ3_S, 7,935 slots, adaptive tier"),
)
"""Published with an engine in C++ for the same model; its windows had up to four rows."""

UNION = {1: 1.0, 2: 1.75, 3: 2.4, 4: 3.05}
"""Experts that a window of so many rows visits, times those of one row; from the same engine."""
