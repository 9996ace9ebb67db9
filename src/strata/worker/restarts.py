"""When to start a dead engine again, and when to stop trying. Pure arithmetic."""

from dataclasses import dataclass


@dataclass(slots=True)
class Restarts:
    """Counts the starts in a row that did no good: no answer came out of them, nor did they last.

    Attributes:
        limit: so many of them, and there is no further one.
        first: seconds before the second start of such a row; the first start after a useful life comes at once.
        most: longest pause; it doubles each time up to this.
        lasting: seconds of being ready that count as useful in themselves.
        useless: starts in a row that did no good.
        total: starts after a death.
    """

    limit: int = 5
    first: float = 0.5
    most: float = 30.0
    lasting: float = 60.0
    useless: int = 0
    total: int = 0

    def died(self, *, answered: bool, ready_for: float) -> float | None:
        """An engine has died.

        Args:
            answered: it has answered something.
            ready_for: seconds it was ready.

        Returns:
            Seconds to wait before the next start; None to give up.
        """
        if answered or ready_for >= self.lasting:
            self.useless = 0
            self.total += 1
            return 0.0
        self.useless += 1
        if self.useless >= self.limit:
            return None
        self.total += 1
        return min(self.most, self.first * 2.0 ** (self.useless - 1))
