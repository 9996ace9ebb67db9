"""The depth that pays, from what drafts have gained in one conversation so far and what windows take."""

from strata.engine.drafting.policy import Acceptance, Costs, Plan, Retries, best_plan
from strata.engine.drafting.timings import Timings


class Measured:
    """Chooses depths for one source of guesses and learns from them; the depth never changes the text."""

    def __init__(self, most: int, timings: Timings, *, head: bool = True, prior: float = 0.5) -> None:
        """Consider depths up to `most`.

        Args:
            most: the deepest.
            timings: what windows and draft steps take.
            head: whether a guess is a draft step; else it costs no time of its own.
            prior: how often a first guess is taken to be right until one was tried.
        """
        self._acceptance = self._unknown = Acceptance.unknown(most, prior)
        self._timings = timings
        self._head = head
        self._retries = Retries()
        self._again = False  # the last plan was a retry
        self._gained = 0  # tokens since drafts began to pay

    def plan(self, most: int) -> Plan:
        """The depth for the next window, at most `most`, and what it promises; counts the windows it advises against.

        A retry promises nothing: any plan that does goes first.
        """
        self._again = False
        if most < 1 or not self._timings.started:
            return Plan()  # the first window says what one row costs
        step = self._timings.step if self._head else 0.0
        if step is None:
            return Plan(1)
        rows = range(1, most + 2)
        timings = self._timings
        costs = Costs([*map(timings.window, rows)], step, [*map(timings.misses, rows)], timings.miss)
        plan = best_plan(self._acceptance.rates[:most], costs)
        if plan.depth:
            return plan
        self._again = self._retries.due
        self._retries = self._retries.waited()
        return Plan(int(self._again))

    def verified(self, asked: int, accepted: int) -> None:
        """So many guesses were right.

        `asked` counts draft steps. A chain that ended early took one more than it offered guesses: the head was not
        sure enough of the last, which cost time and brought nothing, as if it had been refused.
        """
        if self._again:
            self._gained = 0
            if accepted:
                self._acceptance = self._unknown  # the text is another one now
        self._gained += accepted
        self._acceptance = self._acceptance.after(asked, accepted)
        self._retries = self._retries.tried(again=self._again, gained=self._gained)
