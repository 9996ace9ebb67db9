"""The choosing of one request: everything that decides which token comes next, with what it has to remember."""

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strata.engine.candidates import choose_from
from strata.engine.choice import Token, choose, uniform
from strata.engine.penalties import History
from strata.engine.sampling import FORBIDDEN
from strata.engine.verify import Verdict
from strata.errors import RequestError, StrataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from strata.engine.constraint import Constraint
    from strata.engine.sampling import Sampling
    from strata.model.candidates import Candidates, Touched, Wish
    from strata.model.decision import Drawn

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
        self._biased = np.array([token for token, _ in sampling.biases], np.int64)
        values = np.array([bias for _, bias in sampling.biases])
        self._biases = np.where(values == FORBIDDEN, -np.inf, values)
        self._history = History(prompt, vocabulary, sampling.penalty_window) if sampling.penalises else None
        self._constraint = constraint
        self._top = _logprobs(logprobs)
        self._room = np.empty((2, vocabulary))
        self._nothing = np.zeros(vocabulary, np.bool_)
        self._vocabulary = vocabulary
        self._fetched = 0
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
        return self._judge(lambda row: self._choose(logits[row], first + row), guesses)

    @property
    def fetched(self) -> int:
        """Rows of predictions that `verify_found` had to have whole."""
        return self._fetched

    def wish(self, guesses: "Sequence[int]", first: int, *, drawing: bool = False) -> "Wish":
        """What a device has to know to find the candidates of a window's rows; arguments as for `verify`.

        A row's penalties and grammar are those behind the guesses before it. In rows that a grammar does not reach
        nothing may be chosen, and they are not looked at in the end. With `drawing`, the device draws among filtered
        tokens, too.
        """
        from strata.model.candidates import RowWish, Wish  # the command line does not wait for torch

        s, rows = self._sampling, []
        drawing = not s.greedy and (drawing or not s.filters)
        for row, (touched, allowed) in enumerate(self._ahead(guesses)):
            rows.append(RowWish(uniform(s.seed, first + row) if drawing else 0.0, touched, allowed))
        return Wish(self._banned, self._top, s.temperature, tuple(rows))

    def drawing(self, guesses: "Sequence[int]", first: int) -> "Drawn | None":
        """How a device may choose by itself, arguments as for `verify`; None where only the host can."""
        from strata.model.candidates import MOST
        from strata.model.decision import Drawn

        s = self._sampling
        top_k = s.top_k if s.top_k < self._vocabulary else 0
        if self._history is not None or s.biases or (not s.greedy and (s.typical_p < 1 or top_k > MOST)):
            return None
        wish = self.wish(guesses, first, drawing=True)
        return Drawn(wish, tuple(sorted(self._stop_ids)), top_k, s.top_p, s.min_p)

    def verify_found(
        self,
        found: "Sequence[Candidates]",
        guesses: "Sequence[int]",
        first: int,
        fetch: "Callable[[int], NDArray[np.float32]]",
    ) -> Verdict:
        """As `verify`, from what a device found for `wish`; tokens are the same.

        Args:
            found: of each row.
            guesses: as for `verify`.
            first: as for `verify`.
            fetch: the predictions [V] of a row whose candidates do not decide.
        """
        adjusted = self._adjusted if self._history is not None or self._sampling.biases else None

        def one(row: int) -> Token:
            touched = None if adjusted is None else self._touched()
            token = choose_from(
                found[row], self._sampling, first + row, self._vocabulary,
                adjusted=adjusted, shift=0.0 if touched is None else touched.most, top=self._top,
            )  # fmt: skip
            if token is None:
                self._fetched += 1
                total = None if found[row].fault else found[row].total
                token = self._choose(fetch(row), first + row, total)
            return token

        return self._judge(one, guesses)

    def take(self, tokens: "Sequence[int]") -> StrataError | None:
        """Take over tokens that a device has chosen; what is wrong with the last of them, if something is.

        The token stands, but the text cannot go on: as where `verify` advances a grammar.
        """
        try:
            for token in tokens:
                if token not in self._stop_ids:
                    self._advance(token)
        except StrataError as error:
            return error
        return None

    def _judge(self, choose: "Callable[[int], Token]", guesses: "Sequence[int]") -> Verdict:
        """Tokens of rows in order, until a guess is refused or the text ends."""
        tokens: list[Token] = []
        for row, guess in enumerate((*guesses, None)):
            try:
                token = choose(row)
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

    def _ahead(self, guesses: "Sequence[int]") -> "Iterator[tuple[Touched | None, NDArray[np.bool_] | None]]":
        """What penalties, bias and grammar say of each row, if all guesses before it are right."""
        twin = self._constraint.fork() if self._constraint is not None and guesses else self._constraint
        with contextlib.ExitStack() as stack:
            steps = stack.enter_context(self._history.ahead(guesses)) if self._history is not None else iter(guesses)
            for row in range(1 + len(guesses)):
                if row:
                    guess = next(steps)
                    if twin is None or not self._follows(twin, guess):
                        twin = None
                lost = self._constraint is not None and twin is None
                yield self._touched(), self._nothing if lost else self._allowed(twin)

    def _follows(self, constraint: "Constraint", token: int) -> bool:
        """Advance a constraint by a guess; False if the text cannot go on with it."""
        if token in self._stop_ids:
            return False
        try:
            constraint.advance(token)
        except StrataError:
            return False
        return True

    def _allowed(self, constraint: "Constraint | None") -> "NDArray[np.bool_] | None":
        if constraint is None:
            return None
        return self._only_stops if constraint.finished else constraint.allowed()

    def _touched(self) -> "Touched | None":
        """What penalties and bias change."""
        from strata.model.candidates import Touched

        s = self._sampling
        if self._history is None and not s.biases:
            return None
        ids, repeated, shift = np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0)
        if self._history is not None:
            ids, repeated, shift = self._history.touched(s)
        if s.biases:
            order = np.argsort(ids)
            place = np.searchsorted(ids[order], self._biased)
            both = np.zeros(len(self._biased), np.bool_)
            if len(ids):
                place = order[np.minimum(place, len(ids) - 1)]
                both = ids[place] == self._biased
                shift[place[both]] -= self._biases[both]
            ids = np.concatenate((ids, self._biased[~both]))
            repeated = np.concatenate((repeated, np.zeros(int((~both).sum()), np.bool_)))
            shift = np.concatenate((shift, -self._biases[~both]))
        return Touched(ids.astype(np.int32), repeated, shift.astype(np.float32), s.repetition_penalty)

    def _adjusted(self, ids: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logits of some tokens after penalties and bias, as `choose` forms them."""
        if self._history is not None:
            x = self._history.penalised(ids, x, self._sampling)
        if len(self._biased):
            place = np.minimum(np.searchsorted(self._biased, ids), len(self._biased) - 1)
            x = np.where(self._biased[place] == ids, x + self._biases[place], x)
        return x

    def _choose(self, logits: NDArray[np.float32], position: int, total: float | None = None) -> Token:
        allowed = self._allowed(self._constraint)
        return choose(
            logits,
            self._sampling,
            position,
            self._banned,
            history=self._history,
            allowed=allowed,
            top=self._top,
            room=self._room,
            total=total,
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
