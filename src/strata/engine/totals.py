"""Sums over all windows since the start, for whoever watches an engine."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.engine.drafting.options import DEEPEST

TIERS = ("vram", "ram", "ssd")
"""Where an expert may lie, the fastest first."""


@dataclass(slots=True)
class Totals:
    """What all windows and passes did together.

    Attributes:
        windows: windows computed.
        passes: passes over prompts.
        rows: rows of both.
        tokens: tokens chosen, those behind prompts among them.
        microseconds: by phase.
        offered: guesses at each place behind the newest token, the nearest first.
        accepted: how many of them were right.
        drafted: guesses by source.
        right: how many of them were right.
        hits: experts found, by tier; nothing is counted while there is one tier only.
    """

    windows: int = 0
    passes: int = 0
    rows: int = 0
    tokens: int = 0
    microseconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    offered: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    accepted: list[int] = field(default_factory=lambda: [0] * DEEPEST)
    drafted: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)

    def guessed(self, drafted: Mapping[str, int], accepted: int) -> None:
        """A window's guesses, all from one source, and how many of them were right."""
        for source, count in drafted.items():
            self.drafted[source] += count
            self.right[source] += accepted
            for place in range(min(count, DEEPEST)):
                self.offered[place] += 1
                self.accepted[place] += place < accepted

    def values(self) -> dict[str, Any]:
        """As plain data by name."""
        return {
            "windows": self.windows,
            "passes": self.passes,
            "rows": self.rows,
            "drafts": {"offered": list(self.offered), "accepted": list(self.accepted)},
            "sources": {name: [count, self.right[name]] for name, count in self.drafted.items()},
            "experts": {tier: self.hits[tier] for tier in TIERS},
            "phases": {phase: us / 1e6 for phase, us in self.microseconds.items()},
        }
