"""The choosing of one request: everything that decides which token comes next, with what it has to remember."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.verify import Verdict, verify

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strata.engine.constraint import Constraint
    from strata.engine.sampling import Sampling


class Chooser:
    """Chooses the tokens of one request; only tokens of a verdict become part of what it remembers.

    Attributes:
        sampling: settings.
    """

    def __init__(
        self,
        sampling: "Sampling",
        *,
        vocabulary: int,
        banned: "Sequence[int] | NDArray[np.int64]" = (),
        stop_ids: "Collection[int]" = (),
        prompt: "Sequence[int]" = (),
        constraint: "Constraint | None" = None,
        logprobs: int | None = None,
    ) -> None:
        self.sampling = sampling
        self._vocabulary = vocabulary
        self._banned = np.asarray(banned, np.int64)
        self._stop_ids = frozenset(stop_ids)
        self._history = list(prompt)
        self._constraint = constraint
        self._logprobs = logprobs

    def verify(self, logits: NDArray[np.float32], guesses: "Sequence[int]", first: int) -> Verdict:
        """Choose from the rows of a window in order, until a guess is refused or the text ends.

        Args:
            logits: float32 [1 + len(guesses), V].
            guesses: the tokens fed to the rows after the first.
            first: absolute position of the token the first row yields.
        """
        return verify(logits, guesses, first, self.sampling, self._banned, self._stop_ids)
