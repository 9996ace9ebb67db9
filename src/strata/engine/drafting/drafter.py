"""Where guesses come from: the grammar, the text seen so far, and the model's own draft head."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strata.engine.drafting.lookup import Lookup, Match
from strata.engine.drafting.measured import Measured
from strata.engine.drafting.options import Drafting
from strata.engine.drafting.policy import Plan
from strata.engine.drafting.timings import Timings

if TYPE_CHECKING:
    from strata.model import Network, State


LONG = 8
"""Tokens a long match has in common. What follows one is nearly always right, what follows a short one hardly ever
where numbers are counted (`bench/drafts.py`), so they are judged apart."""

SHORT_PRIOR, LONG_PRIOR = 0.25, 0.9
"""How often the first token of a match is taken to be right until one was tried."""


class Guesses(NamedTuple):
    """Tokens that may come next, and who says so."""

    ids: tuple[int, ...] = ()
    source: str = ""


class Drafter(Protocol):
    """Guesses for one conversation. Whatever it says, the text is the same; a bad one only costs time."""

    def guess(self, state: "State", tokens: Sequence[int], most: int) -> Guesses:
        """What may follow.

        Args:
            state: with everything committed but the newest token.
            tokens: new since the last call, the newest last.
            most: guesses there is room for.
        """
        ...

    def learn(self, guesses: int, accepted: int, seconds: float) -> None:
        """What became of the last guesses: so many of them were right, and the window took this long."""
        ...


class Guesser:
    """The drafter of the product: what the grammar forces, else a lookup or the draft head, whichever promises more."""

    def __init__(
        self,
        options: Drafting,
        network: "Network",
        tokens: Iterable[int],
        forced: Callable[[], list[int]] = list,
        timings: Timings | None = None,
    ) -> None:
        """Start with the tokens read so far; `forced` asks the grammar, `timings` may be shared with others."""
        self._options = options
        self._network = network
        self._forced = forced
        self._lookup = Lookup(tokens) if options.depth and options.lookup else None
        self._asked = 0  # draft steps before the last window
        self._used: Measured | None = None  # whose guesses the last window holds
        self._timings = timings = timings or Timings(network.miss)
        self._by_short = Measured(options.depth, timings, head=False, prior=SHORT_PRIOR)
        self._by_long = Measured(options.depth, timings, head=False, prior=LONG_PRIOR)
        self._by_head = Measured(options.depth, timings)

    def guess(self, state: "State", tokens: Sequence[int], most: int) -> Guesses:
        """See `Drafter.guess`."""
        self._asked, self._used = 0, None
        if self._lookup:
            self._lookup.extend(tokens)
        count = min(self._options.depth, most)
        if count < 1:
            return Guesses()
        if forced := self._forced()[:count]:
            return Guesses(tuple(forced), "grammar")
        match = self._lookup.guess(count) if self._lookup else Match()
        by_match = self._by_long if match.shared >= LONG else self._by_short
        looked, chained = len(match.ids), count if self._options.head and not match.ids else 0
        if self._options.measured:
            looked, chained = self._plan(by_match, len(match.ids), count)
        if looked:
            self._asked, self._used = looked, by_match
            return Guesses(match.ids[:looked], "lookup")
        return self._chain(state, tokens[-1], chained) if chained else Guesses()

    def learn(self, guesses: int, accepted: int, seconds: float) -> None:
        """See `Drafter.learn`."""
        met = self._network.met() if self._timings.miss else None
        self._timings.computed(guesses + 1, seconds, 0 if met is None else met.link + met.host)
        if self._used:
            self._used.verified(max(guesses, self._asked), accepted)

    def _plan(self, by_match: Measured, found: int, count: int) -> tuple[int, int]:
        """How much of a match to take, and how many steps of the head; one of them is 0."""
        looked = by_match.plan(found) if found else Plan()
        chained = self._by_head.plan(count) if self._options.head else Plan()
        if looked.depth and (not chained.depth or looked.speed >= chained.speed):
            return looked.depth, 0
        return 0, chained.depth

    def _chain(self, state: "State", newest: int, count: int) -> Guesses:
        """Up to so many steps of the draft head."""
        began = time.perf_counter()
        found, steps = self._network.guess(state, newest, count, self._options.floor)
        self._asked = min(count, len(found) + 1)  # what a chain that ended early would have said next counts as wrong
        self._used = self._by_head
        self._timings.drafted(steps, time.perf_counter() - began)
        return Guesses(found, "head")
