"""The depth that pays, from what drafts have gained in one conversation so far and what windows take."""

from strata.engine.drafting.policy import Acceptance, Costs, best_depth
from strata.engine.drafting.timings import Timings

RETRY = 24
"""Windows without a draft before one is tried again: text changes. One wasted draft in 25 windows costs about 2%."""


class Measured:
    """Chooses depths and learns from them; which depth is chosen never changes the text."""

    def __init__(self, most: int, timings: Timings | None = None, *, head: bool = True) -> None:
        """Consider depths up to `most`; without `head` a guess costs no time of its own."""
        self._acceptance = Acceptance.hopeful(most)
        self._timings = timings or Timings()
        self._head = head
        self._idle = 0

    def depth(self, most: int) -> int:
        """The depth for the next window, at most `most`."""
        if most < 1 or not self._timings.started:
            return 0  # the first window says what one row costs
        step = self._timings.step if self._head else 0.0
        if step is None:
            return 1
        costs = Costs([self._timings.window(rows) for rows in range(1, most + 2)], step)
        depth = best_depth(self._acceptance.rates[:most], costs)
        if depth == 0 and self._idle >= RETRY:
            return 1
        return depth

    def drafted(self, steps: int, seconds: float) -> None:
        """`steps` draft steps took this long."""
        self._timings.drafted(steps, seconds)

    def verified(self, guesses: int, accepted: int, seconds: float, asked: int | None = None) -> None:
        """A window with so many guesses took this long, and so many of them were right.

        `asked` counts the draft steps. One more than the guesses means that the drafter was not sure enough of its last
        step: it cost time and brought nothing, as if it had been refused.
        """
        asked = guesses if asked is None else asked
        self._timings.computed(guesses + 1, seconds)
        self._acceptance = self._acceptance.after(asked, accepted)
        self._idle = 0 if asked else self._idle + 1
