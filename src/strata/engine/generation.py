"""One running answer: its prompt is read pass by pass, then `strata.engine.step` computes it window by window."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strata.engine.choice import Token
from strata.engine.chooser import Chooser
from strata.engine.drafting.drafter import Drafter, Guesser, Guesses
from strata.engine.drafting.options import DEEPEST
from strata.engine.drafting.timings import Timings
from strata.engine.events import Event, Finish, FinishReason, GenerationError, Usage, as_ours
from strata.engine.request import Request
from strata.engine.trace import Trace, WindowRecord
from strata.engine.verify import Verdict
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model import Network, State
    from strata.model.candidates import Candidates, Wish
    from strata.model.decision import Decision, Drawn, Greedy
    from strata.model.ops import Pass

CUT = 64
"""Prompt passes end at absolute multiples of it, so that a device that reads in chunks always meets whole ones."""


class Generation:
    """One running answer.

    Whatever happens to it, it ends with one Finish event, and what it does is seen by no other generation.

    Args:
        network: the model.
        state: holds the first tokens of the prompt, and grows by the others and by every generated token but the last,
            which nothing has followed yet. It may hold earlier tokens that the prompt does not name.
        request: what to compute.
        first: tokens of the prompt that the state holds already; at least one must be left to read.
        drafter: where guesses come from; None is what the request's drafting says.
        timings: what windows take, learned together with others; None learns alone.
        submitted: when the request was submitted, on `clock`; None is now.
        clock: seconds that only grow.

    Raises:
        RequestError: the prompt leaves no room in the context, an id to be read is outside the vocabulary, the state
            does not hold what it should, or drafts of the head are asked for without one.
    """

    def __init__(
        self,
        network: "Network",
        state: "State",
        request: Request,
        first: int = 0,
        *,
        drafter: Drafter | None = None,
        timings: Timings | None = None,
        submitted: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        room = network.config.context - state.length - len(request.prompt) + first
        _check(network, state, request, first, room)
        self.network = network
        self.state = state
        self.request = request
        self.finished: Finish | None = None
        self._first = first
        self._read = first
        self._limit = room if request.max_tokens is None else min(request.max_tokens, room)
        self._clock = clock
        began = clock() if submitted is None else submitted
        self._deadline = None if request.timeout is None else began + request.timeout
        self._chooser = Chooser(
            request.sampling,
            vocabulary=network.config.V,
            banned=request.banned,
            stop_ids=request.stop_ids,
            prompt=request.prompt,
            constraint=request.constraint.fork() if request.constraint else None,
            logprobs=request.logprobs,
        )
        self._greedy, self._greedy_on = (_greedy(self._chooser, request, goes_on=on) for on in (False, True))
        self._drafter = drafter
        self._guessing = drafter is not None or request.drafting.depth > 0
        self._timings = timings
        self._unseen: list[int] = []  # tokens the drafter has not been told of
        self._newest = -1  # the first row of the next window
        self._chosen = 0
        self._windows = 0
        self._drafted: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()

    @property
    def reading(self) -> int:
        """Prompt tokens left to read."""
        return len(self.request.prompt) - self._read

    @property
    def read_tokens(self) -> int:
        """Prompt tokens the state holds, those it came with included."""
        return self._read

    @property
    def tokens(self) -> int:
        """Tokens chosen so far."""
        return self._chosen

    def read(self, rows: int | None = None, *, step: int | None = None, trace: Trace | None = None) -> list[Event]:
        """Read the next piece of the prompt; the pass that reads its end also chooses the first token.

        Args:
            rows: about how many tokens to read, taken down to a multiple of 64 (but at least that); None is the
                network's own size. The pass ends at an absolute multiple of it, at a mark, or at the prompt's end, and
                the bytes do not depend on which.
            step: end at absolute multiples of this instead, and where there are so many rows at any multiple of 64.
            trace: where to note the pass.

        Returns:
            Events, if there are any; nothing happens once the generation is finished.
        """
        if self.finished or not self.reading:
            return []
        if self.overdue:
            return self.end(FinishReason.TIMEOUT)
        began = time.perf_counter_ns()
        ids = self.request.prompt[self._read : self._cut(rows, step)]
        row = self.network.read(self.state, list(ids))[-1:]
        self._read += len(ids)
        done = time.perf_counter_ns()
        events: list[Event] = []
        if not self.reading:
            verdict = self.verify(self.network.logits(row).cpu().numpy(), Guesses())
            events = [*(self.take(verdict) if verdict else ()), *self.ended]
        if trace is not None:
            chosen = time.perf_counter_ns()
            read_us, verify_us, wait_us = (done - began) / 1e3, (chosen - done) / 1e3, trace.waited(began)
            record = WindowRecord(
                began, len(ids), 1, read_us=read_us, verify_us=verify_us, wait_us=wait_us, tokens=self._chosen
            )
            trace.add(record)
        return events

    @property
    def overdue(self) -> bool:
        """Whether the request's time is up."""
        return self._deadline is not None and self._clock() >= self._deadline

    @property
    def ended(self) -> list[Event]:
        """The last event as a list; empty while there is none."""
        return [self.finished] if self.finished else []

    def cancel(self) -> list[Event]:
        """End it because nobody wants it any longer; between passes and windows, at any time."""
        return [] if self.finished else self.end(FinishReason.CANCELLED)

    def end(self, reason: FinishReason, *, stop_id: int | None = None, error: Exception | None = None) -> list[Event]:
        """Finish for a reason."""
        usage = Usage(len(self.request.prompt), self._first, self._windows, dict(self._drafted), dict(self._accepted))
        self.finished = Finish(reason, self._chosen, stop_id, usage, None if error is None else as_ours(error))
        return self.ended

    # What a window does with it, step by step; see `strata.engine.window`.

    @property
    def newest(self) -> int:
        """The token the next window begins with."""
        return self._newest

    def guess(self) -> Guesses:
        """Tokens that may follow the newest; finishes the generation if the drafter breaks."""
        most = self._limit - self._chosen - 1
        try:
            if self._drafter is None:
                self._drafter = Guesser(
                    self.request.drafting, self.network, self.request.prompt, self._chooser.forced, self._timings
                )
            ids, source = self._drafter.guess(self.state, tuple(self._unseen), most)
        except Exception as error:  # noqa: BLE001  # whatever breaks one answer must not break the others
            self.end(FinishReason.ERROR, error=error)
            return Guesses()
        self._unseen = []
        if any(not 0 <= i < self.network.config.V for i in ids):
            wrong = f"the drafter {source!r} guessed ids outside the vocabulary: {list(ids)}"
            self.end(FinishReason.ERROR, error=GenerationError(wrong))
            return Guesses()
        return Guesses(tuple(ids[: min(most, DEEPEST)]), source)

    def verify(self, logits: NDArray[np.float32], guesses: Guesses) -> "Verdict | None":
        """Choose from the rows of a window [1 + guesses, V]; None if that broke and finished the generation."""
        try:
            return self._chooser.verify(logits, guesses.ids, self._position)
        except Exception as error:  # noqa: BLE001  # whatever breaks one answer must not break the others
            self.end(FinishReason.ERROR, error=error)
            return None

    @property
    def greedy(self) -> "Greedy | None":
        """What a device has to know to choose for it; None where the host has to."""
        if self._guessing or self._chosen + 1 >= self._limit:
            return self._greedy
        return self._greedy_on

    def drawing(self, guesses: Guesses) -> "Drawn | None":
        """How a device may choose by itself; None where it cannot, or a grammar breaks."""
        try:
            return self._chooser.drawing(guesses.ids, self._position)
        except Exception:  # noqa: BLE001  # whatever breaks one answer must not break the others
            return None

    def wish(self, guesses: Guesses) -> "Wish | None":
        """What a device has to know to look for the tokens that may be chosen; None where the host has to choose.

        That is so where a grammar breaks; what is wrong is then said where the host chooses.
        """
        try:
            return self._chooser.wish(guesses.ids, self._position)
        except Exception:  # noqa: BLE001  # whatever breaks one answer must not break the others
            return None

    def verify_found(self, done: "Pass", found: "Sequence[Candidates]", guesses: Guesses) -> "Verdict | None":
        """As `verify`, from what a device found; rows that it does not decide are brought to the host."""

        def fetch(row: int) -> NDArray[np.float32]:
            return self.network.predictions([done])[row]

        try:
            return self._chooser.verify_found(found, guesses.ids, self._position, fetch)
        except Exception as error:  # noqa: BLE001  # whatever breaks one answer must not break the others
            self.end(FinishReason.ERROR, error=error)
            return None

    @property
    def fetched(self) -> int:
        """Rows whose candidates did not decide."""
        return self._chooser.fetched

    @property
    def _position(self) -> int:
        """Of the token that a window's first row yields."""
        return self.state.length + (self._chosen > 0)

    def decided(self, done: "Pass", decision: "Decision") -> "Verdict | None":
        """What a device decided and committed, as `verify` would have put it.

        A row that computed no numbers is brought to the host, which says what is wrong with it.
        """
        chosen = zip(decision.ids, decision.logprobs, decision.tops, strict=True)
        tokens = tuple(Token(*one) for one in chosen)
        wrong = self._chooser.take(decision.ids)
        if wrong is not None:
            return Verdict(tokens, len(tokens), wrong)
        if decision.broken is None:
            return Verdict(tokens, len(tokens))
        row = decision.broken
        last = self.verify(self.network.predictions([done])[row : row + 1], Guesses())
        return last and Verdict(tokens + last.tokens, row + 1, last.error)

    def commit(
        self, done: "Pass", verdict: "Verdict", guesses: Guesses, seconds: float | None, *, committed: bool = False
    ) -> int:
        """Accept the rows that are part of the text, and say how many guesses were right.

        The drafter learns from a window that took so many seconds; None if it held rows of others, too.
        A row that computed no numbers is not accepted, though its token is part of the text: nothing of it stays.
        If the rows are `committed` already, that is all.
        """
        rows = len(verdict.tokens) if verdict.error else verdict.rows
        if not committed:
            self.network.commit(self.state, done, rows)
        right = max(0, rows - 1)
        self._windows += 1
        if guesses.ids:
            self._drafted[guesses.source] += len(guesses.ids)
            self._accepted[guesses.source] += right
        if self._drafter is not None and seconds is not None:
            self._drafter.learn(len(guesses.ids), right, seconds)
        return right

    def take(self, verdict: "Verdict") -> list[Token]:
        """Take over the tokens of a verdict, and finish if they end the answer. Returns those that are events."""
        tokens: list[Token] = []
        for token in verdict.tokens:
            self._chosen += 1
            if token.id in self.request.stop_ids:
                self.end(FinishReason.STOP, stop_id=token.id)
                return tokens
            tokens.append(token)
            self._unseen.append(token.id)
            self._newest = token.id
        if verdict.error:
            self.end(FinishReason.ERROR, error=verdict.error)
        elif self._chosen == self._limit:
            self.end(FinishReason.LENGTH)
        return tokens

    def _cut(self, rows: int | None, step: int | None) -> int:
        """How far the next pass reads, in prompt tokens."""
        rows = rows or self.network.pass_rows
        size = max(CUT, rows // CUT * CUT)
        there = self.state.length
        last = self._read + min(size - there % (CUT if step else size), step - there % step if step else size)
        ends = [mark for mark in self.request.marks if self._read < mark < last]
        return min([len(self.request.prompt), last, *ends])


def _check(network: "Network", state: "State", request: Request, first: int, room: int) -> None:
    count = len(request.prompt)
    if not 0 <= first < count:
        raise RequestError(f"of {count} prompt tokens {first} are said to be read; at least one must be left")
    if state.length < first:
        raise RequestError(f"the state holds {state.length} tokens, not the {first} of the prompt it should")
    if room < 1:
        earlier = state.length - first
        before = f" behind {earlier} earlier ones" if earlier else ""
        raise RequestError(
            f"the prompt has {count} tokens{before}, but the context holds {network.config.context} and the "
            "answer needs room for at least one; shorten the prompt"
        )
    unread = request.prompt[first:]  # the others were checked when they were read
    if min(unread) < 0 or max(unread) >= network.config.V:
        outside = next(i for i in unread if not 0 <= i < network.config.V)
        raise RequestError(f"token id {outside} is outside the vocabulary of {network.config.V}")
    if request.drafting.depth and request.drafting.head and state.mtp is None:
        raise RequestError("the draft head cannot guess: this network was built without drafts")


def _greedy(chooser: Chooser, request: Request, *, goes_on: bool) -> "Greedy | None":
    if not chooser.plain:
        return None
    from strata.model.decision import Greedy  # the command line checks requests without waiting for torch

    return Greedy(np.asarray(request.banned, np.int64), tuple(sorted(request.stop_ids)), chooser.top, goes_on)
