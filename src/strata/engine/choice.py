"""From the logits of one position to one token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.filters import filtered, likeliest
from strata.engine.sampling import FORBIDDEN, Sampling
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.engine.penalties import History

F64 = NDArray[np.float64]


class NotFiniteError(StrataError):
    """The model computed NaN or infinity; the request cannot go on (case P02)."""


class NothingAllowedError(StrataError):
    """Constraint, bias and banned ids together leave no token to choose; the request cannot go on."""


@dataclass(frozen=True, slots=True)
class Token:
    """A chosen token.

    Attributes:
        id: the token.
        logprob: natural logarithm of the probability the model itself gave it: before penalties, bias, constraint,
            temperature and filters. Only banned ids have none.
        top: the likeliest tokens of the same distribution with their logarithms, likeliest first, equal ones by lower
            id; as many as were asked for.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def choose(
    logits: NDArray[np.float32],
    sampling: Sampling,
    position: int,
    banned: Sequence[int] | NDArray[np.int64] = (),
    *,
    history: "History | None" = None,
    allowed: NDArray[np.bool_] | None = None,
    top: int = 0,
    room: F64 | None = None,
    total: float | None = None,
) -> Token:
    """Choose the token at `position`.

    Args:
        logits: float32 [V].
        sampling: settings.
        position: absolute position the token will take; with the seed it keys the only random draw.
        banned: ids that are never chosen and have no probability, such as padding rows of the vocabulary.
        history: what the penalties look at; without it there are none.
        allowed: [V], tokens that may be chosen; None is all.
        top: how many of the likeliest tokens to report.
        room: float64 [2, V] to work in; whoever chooses often keeps it, because fresh memory of that size costs more
            than everything that is computed in it.

        total: sum of exponentials of the logits that are not banned, less the largest, where a device has formed it: so
            a log-probability does not depend on who chose.

    Raises:
        NotFiniteError: a logit is NaN or infinite, of any id that is not banned. Whether it may be chosen does not
            matter: such a row comes from a broken computation, and its probabilities mean nothing.
        NothingAllowedError: no token may be chosen.
    """
    x, spare = np.empty((2, len(logits))) if room is None else room
    x[:] = logits
    x[np.asarray(banned, np.int64)] = 0.0
    _check(x, position)
    x[np.asarray(banned, np.int64)] = -np.inf
    largest = x.max()
    if largest == -np.inf:
        raise NothingAllowedError(f"at position {position} no token may be chosen: all are banned")
    np.subtract(x, largest, out=spare)
    alternatives = likeliest(spare, top).tolist() if top else []
    # Of the model's own distribution; the largest weighs 1, so no logarithm of a probability is above 0.
    weighed = float(np.log(total if total is not None else np.exp(spare, out=spare).sum()))
    if history is not None and sampling.penalises:
        history.penalise(x, sampling)
    if sampling.biases:
        _bias(x, sampling)
    if allowed is not None:
        np.putmask(x, ~allowed, -np.inf)
    # argmax returns the first, so equal logits go to the lowest id.
    best = int(x.argmax())
    if x[best] == -np.inf:
        raise NothingAllowedError(
            f"at position {position} no token may be chosen: the grammar, logit_bias and the model's unused ids forbid "
            "all of them, so the answer ends here"
        )
    token = best
    if not sampling.greedy:
        x -= x[best]
        token = _sample(x, spare, sampling, position)
    logprob, *others = (float(np.float64(logits[i]) - largest - weighed) for i in (token, *alternatives))
    return Token(token, logprob, tuple(zip(alternatives, others, strict=True)))


def uniform(seed: int, position: int) -> float:
    """The draw of one position, in [0, 1).

    The first word of Philox-4x64-10 with counter `position` and key `seed`, of which the upper 53 bits count. It
    depends on nothing else, so whatever order or window positions are computed in, each has its one draw.
    """
    # NumPy steps the counter before it computes.
    word = np.random.Philox(counter=(position - 1) % (1 << 256), key=seed).random_raw()
    return (int(word) >> 11) * 2.0**-53


def _check(x: F64, position: int) -> None:
    # In float64 a sum of float32 numbers is finite, unless one of them is not.
    with np.errstate(invalid="ignore"):
        if np.isfinite(x.sum()):
            return
    bad = int(np.flatnonzero(~np.isfinite(x))[0])
    raise NotFiniteError(
        f"the model computed {x[bad]} for token {bad} at position {position}, so the answer ends here; "
        "`strata inspect FILE --check` looks for damaged weights"
    )


def _bias(x: F64, sampling: Sampling) -> None:
    ids, biases = zip(*sampling.biases, strict=True)
    values = np.array(biases)
    x[list(ids)] += np.where(values == FORBIDDEN, -np.inf, values)


def _sample(x: F64, spare: F64, sampling: Sampling, position: int) -> int:
    """One draw from the filtered distribution; `x` [V] are logits whose largest is 0. Both arrays are overwritten."""
    with np.errstate(over="ignore"):  # a tiny temperature may send all others to -inf, which is right
        x /= sampling.temperature
    if sampling.filters:
        ids, weights = filtered(x, spare, sampling)
        cumulated = weights.cumsum()
        return int(ids[drawn(cumulated, sampling, position)])
    return drawn(np.cumsum(np.exp(x, out=spare), out=x), sampling, position)


def drawn(cumulated: F64, sampling: Sampling, position: int) -> int:
    """The place of the draw of a position in running sums of weights."""
    place = int(np.searchsorted(cumulated, uniform(sampling.seed, position) * cumulated[-1], side="right"))
    # The product may round up to the total; then the last token with any weight is meant.
    last = int(np.searchsorted(cumulated, cumulated[-1], side="left"))
    return min(place, last)
