"""How many tokens to guess: as many as make the expected tokens per millisecond largest. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of the parts of a step, in any one unit.

    Attributes:
        windows: time of a window of 1, 2, ... rows.
        draft: time of one more step of the drafter; 0 for a lookup.
    """

    windows: Sequence[float]
    draft: float = 0.0

    def step(self, depth: int) -> float:
        """Time of drafting `depth` tokens and verifying them."""
        return self.windows[depth] + depth * self.draft


def expected_tokens(acceptance: Sequence[float], depth: int) -> float:
    """Tokens a window yields: one of its own, and each draft if it and all before it are accepted.

    Args:
        acceptance: probability that the first, second, ... draft is accepted, given those before were.
        depth: drafts tried.
    """
    total, all_before = 1.0, 1.0
    for p in acceptance[:depth]:
        all_before *= p
        total += all_before
    return total


def best_depth(acceptance: Sequence[float], costs: Costs, gain: float = 1.02) -> int:
    """The depth with the most tokens per unit of time.

    Args:
        acceptance: as for `expected_tokens`; its length is the deepest draft considered.
        costs: times; at least one more window than acceptances.
        gain: how many times the speed without drafts a depth must promise to be worth it.

    Returns:
        A depth from 0 to len(acceptance); 0 when drafting does not pay. Of equal depths the smaller.
    """
    plain = 1.0 / costs.step(0)
    best, rate = 0, plain * gain
    for depth in range(1, len(acceptance) + 1):
        speed = expected_tokens(acceptance, depth) / costs.step(depth)
        if speed > rate:
            best, rate = depth, speed
    return best


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often drafts of each depth were right lately, given that those before them were.

    Old outcomes fade by `FADE` each time their depth is tried. Before anything is known a draft is worth trying.
    """

    right: tuple[float, ...]
    tried: tuple[float, ...]

    FADE = 0.95
    """Half of an outcome's weight is gone after 14 further ones."""

    @classmethod
    def hopeful(cls, depth: int) -> "Acceptance":
        """Nothing known yet: as if two of three drafts at every depth had been right."""
        return cls((2.0,) * depth, (3.0,) * depth)

    def after(self, drafted: int, accepted: int) -> "Acceptance":
        """What is known after a window whose first `accepted` of `drafted` drafts were right."""
        right, tried = list(self.right), list(self.tried)
        for depth in range(min(drafted, accepted + 1, len(tried))):
            right[depth] = right[depth] * self.FADE + (depth < accepted)
            tried[depth] = tried[depth] * self.FADE + 1
        return Acceptance(tuple(right), tuple(tried))

    @property
    def rates(self) -> tuple[float, ...]:
        """Estimated probabilities."""
        return tuple(r / t for r, t in zip(self.right, self.tried, strict=True))
