"""The choosing of one request: everything that decides which token comes next, with what it has to remember."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import Token, choose
from strata.engine.penalties import History
from strata.engine.verify import Verdict
from strata.errors import RequestError, StrataError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strata.engine.constraint import Constraint
    from strata.engine.sampling import Sampling

MOST_LOGPROBS = 20


class Chooser:
    """Chooses the tokens of one request; only tokens that become part of the text change what it remembers.

    Args:
        sampling: settings.
        vocabulary: V.
        banned: ids that are never chosen and have no probability.
        stop_ids: tokens that end the text.
        prompt: what was read before the answer; the repetition penalty looks at it.
        constraint: which tokens may follow which. It is advanced from here alone. When it says that it is finished,
            only stop tokens are chosen.
        logprobs: how many of the likeliest tokens to report with each token, 0 to 20; None is 0.

    Raises:
        RequestError: logprobs is out of range, logit_bias or stop_ids name an id outside the vocabulary, or a
            constraint comes without a stop token, so that it could never end.
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
        outside = next((token for token, _ in sampling.biases if token >= vocabulary), None)
        if outside is not None:
            raise RequestError(f"logit_bias: token id {outside} is outside the vocabulary of {vocabulary}")
        beyond = next((token for token in stop_ids if not 0 <= token < vocabulary), None)
        if beyond is not None:
            raise RequestError(f"stop token {beyond} is outside the vocabulary of {vocabulary}")
        if constraint is not None and not stop_ids:
            raise RequestError("a grammar needs at least one stop token, which ends the text when it is complete")
        self._sampling = sampling
        self._banned = np.asarray(banned, np.int64)
        self._stop_ids = frozenset(stop_ids)
        self._history = History(prompt, vocabulary, sampling.penalty_window) if sampling.penalises else None
        self._constraint = constraint
        self._top = _logprobs(logprobs)
        self._room = np.empty((2, vocabulary))
        self._only_stops = np.zeros(vocabulary, np.bool_)
        self._only_stops[list(self._stop_ids)] = True

    @property
    def plain(self) -> bool:
        """Whether a token depends on nothing but its row's logits, and is the likeliest."""
        s = self._sampling
        return s.greedy and not s.biases and self._history is None and self._constraint is None

    @property
    def top(self) -> int:
        """How many of the likeliest tokens are reported with each."""
        return self._top

    def verify(self, logits: NDArray[np.float32], guesses: "Sequence[int]", first: int) -> Verdict:
        """Choose from the rows of a window in order, until a guess is refused or the text ends.

        A refused guess is refused by equality alone, so the tokens are those that windows of one row would have given.
        No guess ever reaches penalties or constraint: a row's own choice does, before the next row is looked at.

        At V = 248,320 a row takes about 0.4 ms greedy, penalties and 20 log-probabilities included, 0.6 ms with top_k,
        0.7 with top_p, 1.5 with temperature alone, and a grammar's mask 0.03 ms (docs/sampling.md, measured).

        Args:
            logits: float32 [1 + len(guesses), V].
            guesses: the tokens fed to the rows after the first.
            first: absolute position of the token the first row yields.

        Returns:
            The tokens, how many rows to commit, and what went wrong, if something did.
        """
        tokens: list[Token] = []
        for row, guess in enumerate((*guesses, None)):
            try:
                token = self._choose(logits[row], first + row)
                tokens.append(token)
                if token.id in self._stop_ids:
                    break
                self._advance(token.id)
            except StrataError as error:
                return Verdict(tuple(tokens), row + 1, error)
            if token.id != guess:
                break
        return Verdict(tuple(tokens), len(tokens))

    def forced(self) -> list[int]:
        """Tokens the constraint leaves no choice about, as far as it knows them: good guesses, nothing more."""
        return [] if self._constraint is None or self._constraint.finished else self._constraint.forced()

    def _choose(self, logits: NDArray[np.float32], position: int) -> Token:
        allowed = None
        if self._constraint is not None:
            allowed = self._only_stops if self._constraint.finished else self._constraint.allowed()
        return choose(
            logits,
            self._sampling,
            position,
            self._banned,
            history=self._history,
            allowed=allowed,
            top=self._top,
            room=self._room,
        )

    def _advance(self, token: int) -> None:
        if self._history is not None:
            self._history.add(token)
        if self._constraint is not None:
            self._constraint.advance(token)


def _logprobs(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_LOGPROBS:
        raise RequestError(f"logprobs must be an integer from 0 to {MOST_LOGPROBS}, not {value!r}")
    return value
