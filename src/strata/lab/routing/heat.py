"""Whether conversations that take turns should have counts of their own."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.generator import Routing
from strata.lab.routing.windows import visits, windows
from strata.memory.slots import Move, SlotCache

CASES = ((2, 200), (2, 600), (4, 200))
"""Conversations, and rows of a turn."""

SHARES = (0.12, 0.32)

ROWS = 4


@dataclass(frozen=True, slots=True)
class Turns:
    """What counts of their own came to.

    Attributes:
        conversations: that take turns.
        rows: of a turn.
        share: of the experts that fit.
        own: whether each has counts of its own.
        hits: share of the visits, without the first quarter.
        moves: a window.
    """

    conversations: int
    rows: int
    share: float
    own: bool
    hits: float
    moves: float


def turns(seed: int, moves: int, rows: int) -> Iterator[Turns]:
    """All cases, with and without."""
    routing = Routing(seed=seed)
    c = routing.character
    counts = np.zeros(c.layers * c.experts)
    for each in windows(routing.rows(4000, 1_000_000), ROWS, c.experts):
        counts[each[:, 0] * c.experts + each[:, 1]] += 1
    start = np.argsort(-counts, kind="stable")
    for conversations, turn in CASES:
        texts = [routing.conversation(number) for number in range(conversations)]
        played = [
            (
                i % conversations,
                [visits(each, c.experts) for each in np.split(texts[i % conversations].rows(turn), turn // ROWS)],
            )
            for i in range(rows // turn)
        ]
        for share in SHARES:
            for own in (False, True):
                slots = int(share * c.layers * c.experts)
                cache = SlotCache([1], [0] * c.layers, [slots], experts=c.experts)
                for move in cache.fetch(np.stack(np.divmod(start[:slots], c.experts), 1), slots):
                    cache.begin(move)
                    cache.landed(move)
                yield Turns(conversations, turn, share, own, *_play(cache, played, moves, own=own))


def _play(
    cache: SlotCache, played: list[tuple[int, list[NDArray[np.int32]]]], moves: int, *, own: bool
) -> tuple[float, float]:
    kept: dict[int, NDArray[np.float64]] = {}
    before: int | None = None
    flying: list[Move] = []
    totals = np.zeros(4)
    for number, (whose, each_window) in enumerate(played):
        if own and before is not None and whose != before:
            kept[before] = cache.turn(kept.get(whose))
        before = whose
        for each in each_window:
            hits = cache.seen(each)
            for move in flying:
                cache.landed(move)
            flying = cache.moves(moves)
            for move in flying:
                cache.begin(move)
            if number >= len(played) // 4:
                totals += (hits, len(each), len(flying), 1)
    hits_all, visits_all, moved, count = totals.tolist()
    return hits_all / visits_all, moved / count
