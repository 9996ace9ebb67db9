"""What a device is asked about the rows of a window, and what it says, so that the host need not read all predictions.

The host chooses (`strata.engine.candidates`); the device only finds the tokens that may be chosen, and adds up the
others.
Adjusted logits are what penalties, bias and grammar make of a row: there in float32, here in float64.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MOST = 64
"""Tokens a device names."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Tokens whose logits are not what the model said: ``(x / r if x > 0 else x * r, where repeated) - shift``.

    Attributes:
        ids: int32 [M], each once.
        repeated: bool [M].
        shift: float32 [M]; infinite for tokens that may not be chosen.
        repetition: r.
    """

    ids: NDArray[np.int32]
    repeated: NDArray[np.bool_]
    shift: NDArray[np.float32]
    repetition: float = 1.0

    @property
    def most(self) -> float:
        """The largest finite shift, either way."""
        finite = self.shift[np.isfinite(self.shift)]
        return float(np.abs(finite).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class RowWish:
    """What a device has to know about one row.

    Attributes:
        draw: where in the distribution the token is drawn, from 0 to 1.
        touched: None where there are none.
        allowed: bool [V], None for all; what the grammar says.
    """

    draw: float = 0.0
    touched: Touched | None = None
    allowed: NDArray[np.bool_] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a device has to know about one conversation's rows.

    Attributes:
        banned: int64, ids that are never chosen and have no probability.
        top: how many of the model's own likeliest tokens to name.
        temperature: 0 where only the likeliest matter.
        rows: of its rows.
    """

    banned: NDArray[np.int64] = field(repr=False)
    top: int
    temperature: float
    rows: tuple[RowWish, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a device says about one row.

    Attributes:
        ids: int64 [n], at most `MOST`: the tokens with the largest adjusted logits, of equal ones the lower ids.
        logits: float32 [n], the model's own.
        whole: no other token may be chosen.
        floor: the least of their adjusted logits.
        fault: a logit of an id that is not banned is NaN or infinite; the other numbers then mean nothing.
        largest: the model's largest logit.
        total: sum of exponentials of the model's own logits, less the largest.
        weight: sum of exponentials of adjusted logits, less the largest of those, over the temperature.
        drawn: the token at the row's draw among all by rising id, its logit, and the shares of weight before and up to
            it; the token is -1 where rounding left none.
        top: the model's own likeliest ids, as many as were asked for, and their logits.
    """

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    whole: bool
    floor: float
    fault: bool
    largest: float
    total: float
    weight: float
    drawn: tuple[int, float, float, float]
    top: tuple[tuple[int, float], ...] = ()

    def logprob(self, token: int) -> float:
        """Natural logarithm of the probability that the model gave one of them, or the token that is drawn."""
        logit = self.drawn[1] if token == self.drawn[0] else float(self.logits[self.ids == token][0])
        return self._logarithm(logit)

    def likeliest(self, count: int) -> tuple[tuple[int, float], ...]:
        """The model's own likeliest tokens with their logarithms."""
        return tuple((token, self._logarithm(logit)) for token, logit in self.top[:count])

    def _logarithm(self, logit: float) -> float:
        return float(np.float64(logit) - self.largest - float(np.log(self.total)))
