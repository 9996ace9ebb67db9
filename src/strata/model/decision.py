"""Choosing the likeliest tokens where the predictions are: what a device is told, and what it answers."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from strata.model.candidates import Candidates, Wish


@dataclass(frozen=True)
class Greedy:
    """How one conversation's tokens are chosen, where the likeliest is taken whatever was said before.

    Attributes:
        banned: int64, ids that are never chosen and have no probability.
        stop_ids: tokens that end the text.
        top: how many of the likeliest tokens to report with each.
        goes_on: whether the text's next window is one row, that of the last token of this one, if that ends nothing.
    """

    banned: NDArray[np.int64] = field(repr=False)
    stop_ids: tuple[int, ...]
    top: int
    goes_on: bool = False

    @cached_property
    def key(self) -> bytes:
        """Equal where the banned ids are."""
        return self.banned.tobytes()


@dataclass(frozen=True, slots=True)
class Drawn:
    """How one conversation's tokens are drawn, where nothing but its rows' logits, draws and grammar matters.

    Attributes:
        wish: what is asked about its rows; nothing is adjusted.
        stop_ids: tokens that end the text.
        top_k: 0 for off, else at most `strata.model.candidates.MOST`.
        top_p: 1 for off.
        min_p: 0 for off.
    """

    wish: Wish
    stop_ids: tuple[int, ...]
    top_k: int
    top_p: float
    min_p: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The tokens of a window's rows in order, until a guess was refused, the text ended, or a row had no numbers.

    Attributes:
        ids: the tokens; as many rows are committed.
        logprobs: of each, the natural logarithm of the probability the model gave it.
        tops: of each, the likeliest ids with their logarithms, likeliest first, equal ones by lower id.
        broken: the number of the row that would have come next, but computed no numbers, or had nothing to choose.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[tuple[tuple[int, float], ...], ...]
    broken: int | None = None


Undecided: TypeAlias = list[Candidates]
"""What was found for the rows of a conversation of whose tokens the device is not certain; nothing is committed."""
