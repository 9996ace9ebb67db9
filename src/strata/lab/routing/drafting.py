"""Drafts on made-up routing: how deep, and what to fetch meanwhile, with the product's own rules and a machine's times.

A text is a row of tokens; beside each token's routing stands that of a wrong guess in its place. Whether a guess at a
place is right is drawn once for all rules, so they read the same text with the same luck.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.engine.drafting.measured import Measured
from strata.engine.drafting.prefetch import fetchable, worth_fetching
from strata.engine.drafting.timings import Timings
from strata.lab.routing.generator import Routing, Rows
from strata.lab.routing.machine import COMMIT, EXPERT, Machine
from strata.lab.routing.windows import visits
from strata.memory.slots import Move, SlotCache, moves_that_fit

DEEPEST = 7
WARM = 400
"""Tokens at the beginning that are not counted."""

WINDOW = 12e-3
"""Seconds of a window, for the moves that fit."""

WORTH = 2.0
"""Visits that being wanted for a draft counts: the margin of the adaptive rule, which a newcomer then need not have."""

Acceptance = Callable[[int], float]
"""How likely a guess at a place is right."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is generated.

    Attributes:
        right: routing of each token.
        wrong: of a wrong guess in its place.
        lucky: [T], from 0 to 1; a guess is right where it is below the acceptance.
        start: experts by how often other conversations visited them.
        experts: E.
    """

    right: Rows
    wrong: Rows
    lucky: NDArray[np.float64]
    start: NDArray[np.int64]
    experts: int


@dataclass(frozen=True, slots=True)
class Rule:
    """How drafts are made.

    Attributes:
        depth: always so many; None for as many as promise most.
        priced: whether misses are priced apart from windows.
        sure: how often a guess of a visit is right; 0 fetches nothing.
    """

    depth: int | None = None
    priced: bool = False
    sure: float = 0.0


RULES = {
    "none": Rule(0),
    "always 1": Rule(1),
    "always 3": Rule(3),
    "always 7": Rule(7),
    "measured": Rule(),
    "priced": Rule(priced=True),
    "priced, fetching at 25%": Rule(priced=True, sure=0.25),
    "priced, fetching at 50%": Rule(priced=True, sure=0.5),
    "priced, fetching at 80%": Rule(priced=True, sure=0.8),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a text.

    Attributes:
        speed: tokens a second.
        depth: drafts a window.
        tokens: a window.
        hits: share of visits.
        moved: experts copied a window, for drafts and by the adaptive rule.
    """

    speed: float
    depth: float
    tokens: float
    hits: float
    moved: float


def text(tokens: int, seed: int = 1, learned: int = 4000) -> Text:
    """A text of one conversation after the other, and a profile of others."""
    routing = Routing(seed=seed)
    c = routing.character
    counts = np.zeros(c.layers * c.experts)
    for _, rows in routing.rows(learned, 1_000_000):
        found = visits(rows, c.experts)
        counts[found[:, 0] * c.experts + found[:, 1]] += found[:, 2]
    pieces, number, left = [], 0, tokens
    while left > 0:
        conversation = routing.conversation(number)
        count = min(left, conversation.length)
        pieces += [conversation.forks(min(128, count - i)) for i in range(0, count, 128)]
        left -= count
        number += 1
    right, wrong = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return Text(right, wrong, np.random.default_rng(seed).random(tokens), np.argsort(-counts, kind="stable"), c.experts)


def play(given: Text, machine: Machine, acceptance: Acceptance, rule: Rule, seed: int = 0) -> Outcome:
    """Generate a text by a rule on a machine."""
    cache = _filled(given, machine)
    moves = moves_that_fit(EXPERT, machine.link, WINDOW)
    timings = Timings(machine.miss if rule.priced else 0.0)
    measured = Measured(DEEPEST, timings)
    draw = np.random.default_rng(seed)
    right = np.array([lucky < acceptance(at) for at, lucky in enumerate(given.lucky)])
    flying: list[Move] = []
    totals = np.zeros(7)
    at, behind = 0, 0.0
    while at + DEEPEST + 1 < len(given.right):
        depth = measured.plan(DEEPEST).depth if rule.depth is None else rule.depth
        run = right[at + 1 : at + 1 + depth]
        accepted = int(run.argmin()) if not run.all() else depth
        rows = np.concatenate([given.right[at : at + 1 + accepted], given.wrong[at + 1 + accepted : at + 1 + depth]])
        drafting = depth * machine.step
        fetched = 0
        if rule.sure and depth:
            fetched = _fetch(cache, given, rows, rule.sure, fetchable(drafting + COMMIT, machine.link, EXPERT), draw)
        seen = visits(rows, given.experts)
        misses = len(seen) - cache.seen(seen)
        seconds = machine.window(1 + depth, len(seen), misses, behind)
        if rule.depth is None:
            timings.drafted(depth, drafting)
            timings.computed(1 + depth, seconds, misses)
            if depth:
                measured.verified(depth, accepted)
        for move in flying:
            cache.landed(move)
        flying = cache.moves(max(0, moves - fetched))
        for move in flying:
            cache.begin(move)
        behind = max(0.0, machine.copies(len(flying) + fetched) - drafting - COMMIT)
        if at >= WARM:
            totals += (1, accepted + 1, depth, len(seen), misses, len(flying) + fetched, seconds + drafting + COMMIT)
        at += accepted + 1
    windows, tokens, depths, seen_all, missed, moved, total = totals.tolist()
    return Outcome(tokens / total, depths / windows, tokens / windows, 1 - missed / seen_all, moved / windows)


def _filled(given: Text, machine: Machine) -> SlotCache:
    layers = given.right.shape[1]
    cache = SlotCache([EXPERT], [0] * layers, [int(machine.resident * layers * given.experts)], experts=given.experts)
    first = given.start[: cache.slots[0]]
    for move in cache.fetch(np.stack(np.divmod(first, given.experts), 1), len(first)):
        cache.begin(move)
        cache.landed(move)
    return cache


def _fetch(cache: SlotCache, given: Text, rows: Rows, sure: float, most: int, draw: np.random.Generator) -> int:
    """Fetch what the drafted rows are guessed to visit; a guess is right so often, else it names somebody popular."""
    layers = rows.shape[1]
    base = np.arange(layers)[:, None] * given.experts
    keys = (rows + base).ravel().astype(np.int64)
    other = given.start[(len(given.start) * draw.random(len(keys)) ** 2).astype(np.int64)]
    keys = np.where(draw.random(len(keys)) < sure, keys, other)
    keys = keys[cache.slot_of.ravel()[keys] < 0]
    wanted = worth_fetching(keys, np.full(len(keys), sure), most, 0.0)
    moves = cache.fetch(np.stack(np.divmod(wanted, given.experts), 1), most, worth=WORTH)
    for move in moves:
        cache.begin(move)
        cache.landed(move)
    return len(moves)
