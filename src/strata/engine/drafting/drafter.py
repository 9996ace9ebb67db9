"""Where guesses come from: the grammar, the text seen so far, and the model's own draft head."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strata.engine.drafting.lookup import Lookup
from strata.engine.drafting.measured import Measured
from strata.engine.drafting.options import Drafting
from strata.engine.drafting.timings import Timings

if TYPE_CHECKING:
    from strata.model import Network, State


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
    """The drafter of the product: what the grammar forces, else a lookup, else the draft head."""

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
        wanted = options.depth and options.measured
        self._measured = Measured(options.depth, timings, head=options.head) if wanted else None

    def guess(self, state: "State", tokens: Sequence[int], most: int) -> Guesses:
        """See `Drafter.guess`."""
        self._asked = 0
        if self._lookup:
            self._lookup.extend(tokens)
        count = min(self._options.depth, most)
        if count < 1:
            return Guesses()
        if forced := self._forced()[:count]:
            return Guesses(tuple(forced), "grammar")
        if self._measured:
            count = self._measured.depth(count)
        if count < 1:
            return Guesses()
        if found := self._lookup.guess(count) if self._lookup else []:
            return Guesses(tuple(found), "lookup")
        if not self._options.head:
            return Guesses()
        began = time.perf_counter()
        steps = self._network.draft(state, tokens[-1], count, self._options.floor)
        found = [int(logits.argmax()) for logits in steps]
        self._asked = min(count, len(found) + 1)  # a chain that ended early took one step more than it guessed
        if self._measured:
            self._measured.drafted(self._asked, time.perf_counter() - began)
        return Guesses(tuple(found), "head")

    def learn(self, guesses: int, accepted: int, seconds: float) -> None:
        """See `Drafter.learn`."""
        if self._measured:
            self._measured.verified(guesses, accepted, seconds, max(guesses, self._asked))
