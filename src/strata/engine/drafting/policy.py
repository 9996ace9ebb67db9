"""How many tokens to guess: as many as make the expected tokens per millisecond largest. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of the parts of a step, in any one unit.

    A row more is cheap for what is read once for all rows, and dear for experts that are not in the card's memory: it
    visits some of its own, and each that is missed takes the CPU's or the link's time. So misses are priced apart from
    the window they happen in.

    Attributes:
        windows: time of a window of 1, 2, ... rows, without misses.
        draft: time of one more step of the drafter; 0 for a lookup.
        misses: misses to be expected of a window of 1, 2, ... rows; none where empty.
        miss: time of one.
    """

    windows: Sequence[float]
    draft: float = 0.0
    misses: Sequence[float] = ()
    miss: float = 0.0

    def step(self, depth: int) -> float:
        """Time of drafting `depth` tokens and verifying them."""
        missed = self.misses[depth] * self.miss if self.misses else 0.0
        return self.windows[depth] + missed + depth * self.draft


class Plan(NamedTuple):
    """How many tokens to guess, and how many times the speed without guesses that promises."""

    depth: int = 0
    speed: float = 1.0


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


def best_plan(acceptance: Sequence[float], costs: Costs, gain: float = 1.02) -> Plan:
    """The depth with the most tokens per unit of time.

    Args:
        acceptance: as for `expected_tokens`; its length is the deepest draft considered.
        costs: times; at least one more window than acceptances.
        gain: how many times the speed without drafts a depth must promise to be worth it.

    Returns:
        A depth from 0 to len(acceptance); 0 when drafting does not pay. Of equal depths the smaller.
    """
    plain = costs.step(0)
    best, least = Plan(), gain
    for depth in range(1, len(acceptance) + 1):
        speed = expected_tokens(acceptance, depth) / costs.step(depth) * plain
        if speed > least:
            best, least = Plan(depth, speed), speed
    return best


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often drafts of each depth were right lately, given that those before them were.

    Old outcomes fade by `FADE` each time their depth is tried. What little is known of a depth is rounded off with the
    rate of the one before it, as if it had been tried `ROUNDED` times with that outcome: text that is easy for one step
    is easy for the next.

    Attributes:
        right: outcomes by depth, the first step's first.
        tried: how many of each depth are counted.
        prior: how often the first step is taken to be right until it was tried.
    """

    right: tuple[float, ...]
    tried: tuple[float, ...]
    prior: float = 0.5

    FADE = 0.95
    """Half of an outcome's weight is gone after 14 further ones."""

    ROUNDED = 2.0

    @classmethod
    def unknown(cls, depth: int, prior: float = 0.5) -> "Acceptance":
        """Nothing tried yet."""
        return cls((0.0,) * depth, (0.0,) * depth, prior)

    def after(self, drafted: int, accepted: int) -> "Acceptance":
        """What is known after a window whose first `accepted` of `drafted` drafts were right."""
        right, tried = list(self.right), list(self.tried)
        for depth in range(min(drafted, accepted + 1, len(tried))):
            right[depth] = right[depth] * self.FADE + (depth < accepted)
            tried[depth] = tried[depth] * self.FADE + 1
        return Acceptance(tuple(right), tuple(tried), self.prior)

    @property
    def rates(self) -> tuple[float, ...]:
        """Estimated probabilities."""
        rates, before = [], self.prior
        for right, tried in zip(self.right, self.tried, strict=True):
            before = (right + self.ROUNDED * before) / (tried + self.ROUNDED)
            rates.append(before)
        return tuple(rates)


@dataclass(frozen=True, slots=True)
class Retries:
    """When to try a draft again after drafts have stopped paying: text changes.

    Each retry doubles the windows to the next one, until drafts have gained something again.

    Attributes:
        idle: windows since drafts last were tried.
        wait: windows to stay idle.
    """

    idle: int = 0
    wait: int = 16

    MOST = 64
    """Most windows between two retries: one wasted draft in 64 windows costs less than half a percent."""

    PAID = 8
    """Tokens gained in a row of windows with drafts after which the next wait is a short one again."""

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self.idle >= self.wait

    def waited(self) -> "Retries":
        """After a window without drafts."""
        return replace(self, idle=self.idle + 1)

    def tried(self, *, again: bool, gained: int) -> "Retries":
        """After a window with drafts.

        Args:
            again: it was a retry.
            gained: tokens accepted since drafts began or began again, this window's among them.
        """
        if gained >= self.PAID:
            return Retries()
        return Retries(0, min(self.MOST, 2 * self.wait) if again else self.wait)
