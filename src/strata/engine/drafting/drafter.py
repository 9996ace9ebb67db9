"""Where guesses come from: the text seen so far, and the model's own draft head."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.engine.drafting.lookup import Lookup
from strata.engine.drafting.measured import Measured
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model import Network, State

DEEPEST = 7
"""A window has eight rows, and the first is no guess."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """What may be guessed. None of it changes the text.

    Attributes:
        depth: most tokens guessed for a window, 0 to 7; 0 guesses nothing.
        measured: guess as many of them as measured time and acceptance say will pay, else always as many.
        lookup: guess what followed the last time the same tokens were seen; tried first.
        head: guess with the model's draft head, which the network must feed (`Network.drafts`).
        floor: the head's chain ends before a token it finds less probable than this.

    Raises:
        RequestError: a value is out of range.
    """

    depth: int = 0
    measured: bool = False
    lookup: bool = True
    head: bool = False
    floor: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or not 0 <= self.depth <= DEEPEST:
            raise RequestError(f"drafts must be an integer from 0 to {DEEPEST}, not {self.depth!r}")
        if not isinstance(self.floor, float | int) or not 0 <= self.floor <= 1:
            raise RequestError(f"the confidence floor of drafts must be from 0 to 1, not {self.floor!r}")


class Drafter:
    """Guesses for one conversation."""

    def __init__(self, options: Drafting, network: "Network", tokens: Iterable[int]) -> None:
        """Start with the tokens read so far."""
        self._options = options
        self._network = network
        self._lookup = Lookup(tokens) if options.depth and options.lookup else None
        self._measured = Measured(options.depth) if options.depth and options.measured else None

    def guess(self, state: "State", tokens: Iterable[int], most: int) -> list[int]:
        """What may follow.

        Args:
            state: with everything committed but the newest token.
            tokens: new since the last call, the newest last.
            most: guesses there is room for.
        """
        tokens = list(tokens)
        if self._lookup:
            self._lookup.extend(tokens)
        count = min(self._options.depth, most)
        if self._measured:
            count = self._measured.depth(count)
        if count < 1:
            return []
        found = self._lookup.guess(count) if self._lookup else []
        if not found and self._options.head:
            began = time.perf_counter()
            steps = self._network.draft(state, tokens[-1], count, self._options.floor)
            found = [int(logits.argmax()) for logits in steps]
            if self._measured:
                self._measured.drafted(max(1, len(found)), time.perf_counter() - began)
        return found

    def learn(self, guesses: int, accepted: int, seconds: float) -> None:
        """What became of the last guesses: so many of them were right, and the window took this long."""
        if self._measured:
            self._measured.verified(guesses, accepted, seconds)
