"""All policies over all sizes, on the same windows: hits, and what the copies cost."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.generator import Rows
from strata.lab.routing.policies.counted import Counted
from strata.lab.routing.policies.lfu import Lfu
from strata.lab.routing.policies.lru import Lru
from strata.lab.routing.policies.oracle import Oracle
from strata.lab.routing.policies.policy import Keys, Policy, Setting
from strata.lab.routing.policies.static import Static
from strata.lab.routing.policies.tiered import Tiered
from strata.lab.routing.windows import windows
from strata.memory.slots import Rule

WARM = 300
"""Windows at the beginning that are not counted: every policy starts with the profile and finds its own way."""

UNBOUND = 1 << 30

ONLINE = ("counted", "counted by layer", "lru", "lfu", "tiered", "static", "lru, any number of moves")
"""Policies that know the past only. All but the last and the bursts of "tiered" keep to the moves of a window."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a policy came to.

    Attributes:
        policy: its name.
        share: of all experts that fit.
        hits: share of the visits that were hits; each expert of a window counts once.
        moves: copies begun after a window, on average.
        misses: of a window, on average.
    """

    policy: str
    share: float
    hits: float
    moves: float
    misses: float


@dataclass(frozen=True, slots=True)
class Case:
    """What policies are compared on.

    Attributes:
        layers: L.
        experts: E.
        start: experts by how often other conversations visited them, most often first.
        windows: the experts of each window.
    """

    layers: int
    experts: int
    start: Keys
    windows: Sequence[Keys]


def case(
    learned: Iterable[tuple[int, Rows]], played: Iterable[tuple[int, Rows]], layers: int, experts: int, rows: int = 4
) -> Case:
    """A case of two sets of conversations: a profile is learned from the one, and the other is played.

    Args:
        learned: conversations whose counts make the profile.
        played: conversations that are seen window by window.
        layers: L.
        experts: E.
        rows: of a window.
    """

    def flat(some: NDArray[np.int32]) -> Keys:
        return some[:, 0].astype(np.int64) * experts + some[:, 1]

    counts = np.zeros(layers * experts)
    for each in windows(learned, rows, experts):
        counts[flat(each)] += 1
    start = np.argsort(-counts, kind="stable")
    return Case(layers, experts, start, [flat(each) for each in windows(played, rows, experts)])


def policies(rule: Rule | None = None) -> dict[str, Callable[[Setting, Case], Policy]]:
    """Every policy by name."""
    return {
        "counted": lambda s, c: Counted(s, c.start, rule),
        "counted by layer": lambda s, c: Counted(s, c.start, rule, by_layer=True),
        "lru": lambda s, c: Lru(s, c.start),
        "lfu": lambda s, c: Lfu(s, c.start),
        "tiered": lambda s, c: Tiered(s, c.start),
        "static": lambda s, c: Static(s, c.start),
        "lru, any number of moves": lambda s, c: Lru(s._replace(moves=UNBOUND), c.start),
        "oracle": lambda s, c: Oracle(s, c.start, c.windows),
    }


def score(name: str, share: float, moves: int, given: Case, rule: Rule | None = None) -> Score:
    """Play a case with one policy."""
    setting = Setting(given.layers, given.experts, int(share * given.layers * given.experts), moves)
    policy = policies(rule)[name](setting, given)
    found = np.array([(len(keys), *policy.window(keys)) for keys in given.windows])
    warm = WARM if len(found) > 2 * WARM else len(found) // 2
    visits, hits, moved = found[warm:].sum(0).tolist()
    count = len(found) - warm
    return Score(name, share, hits / visits, moved / count, (visits - hits) / count)
