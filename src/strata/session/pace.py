"""How long passes over prompts take, learned, and how long they may be while others wait."""

DECAY = 0.8
"""How much a pass counts still when the next one is over."""

SHORTEST = 256
"""Tokens of the shortest pass that is worth while."""

STEP = 64

SHARE = 0.25
"""Of a pass's time, that answers go on for before the next: each gets some windows, not one."""


class Pace:
    """A pass takes ``fixed + each * tokens`` seconds, as fitted to the latest ones.

    The fixed part is what no shorter pass saves: experts that have to be brought whoever asks for them, weights that
    are read once. Where it is large, short passes make everybody wait for little; so a pass is as long as others may
    wait, but never so short that less than half of its time is for its tokens.

    Args:
        wait: seconds that others may wait.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """A pass has taken so long."""
        self._n, self._x, self._y, self._xx, self._xy = (
            DECAY * old + new
            for old, new in zip(
                (self._n, self._x, self._y, self._xx, self._xy),
                (1.0, tokens, seconds, tokens * tokens, tokens * seconds),
                strict=True,
            )
        )

    @property
    def line(self) -> tuple[float, float]:
        """Seconds of a pass, and of each of its tokens; what was not seen at several lengths is put on the tokens."""
        if not self._n or not self._x:
            return 0.0, 0.0
        spread = self._xx * self._n - self._x * self._x
        if spread <= 1e-3 * self._x * self._x:
            return 0.0, self._y / self._x
        each = (self._xy * self._n - self._x * self._y) / spread
        fixed = (self._y - each * self._x) / self._n
        if each < 0:
            return self._y / self._n, 0.0
        return (fixed, each) if fixed >= 0 else (0.0, self._y / self._x)

    def rows(self, most: int) -> int:
        """Tokens of the next pass while others wait: a multiple of 64, or `most`."""
        fixed, each = self.line
        if not each:
            return most
        found = (max(self._wait, 2 * fixed) - fixed) / each
        return most if found >= most else min(most, max(SHORTEST, int(found) // STEP * STEP))
