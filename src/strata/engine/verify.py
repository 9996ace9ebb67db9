"""Which tokens of a window count: each row's own choice, as long as the row after it was fed that very token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import NotFiniteError, Token, choose

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strata.engine.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a window yields.

    Attributes:
        tokens: chosen tokens in order; a stop token only as the last.
        rows: rows to commit, those whose input is part of the text.
        error: the row after the last token computed no numbers.
    """

    tokens: tuple[Token, ...]
    rows: int
    error: NotFiniteError | None = None


def verify(
    logits: NDArray[np.float32],
    guesses: "Sequence[int]",
    first: int,
    sampling: "Sampling",
    banned: "Sequence[int] | NDArray[np.int64]",
    stop_ids: "Collection[int]",
) -> Verdict:
    """Choose from the rows of a window in order, until a guess is refused or the text ends.

    A refused guess is refused by equality alone, so the tokens are those that windows of one row would have given.

    Args:
        logits: float32 [1 + len(guesses), V].
        guesses: the tokens fed to the rows after the first.
        first: absolute position of the token the first row yields.
        sampling: settings.
        banned: ids never chosen.
        stop_ids: tokens that end the text.
    """
    tokens: list[Token] = []
    for row, guess in enumerate((*guesses, None)):
        try:
            token = choose(logits[row], sampling, first + row, banned)
        except NotFiniteError as error:
            return Verdict(tuple(tokens), row + 1, error)
        tokens.append(token)
        if token.id != guess or token.id in stop_ids:
            break
    return Verdict(tuple(tokens), len(tokens))
