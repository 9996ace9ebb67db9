"""One model ready to run: its dimensions, weights and the operations of a device."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import RequestError
from strata.model import forward, mtp
from strata.model.candidates import Candidates, Wish
from strata.model.config import ModelConfig
from strata.model.decision import Decision, Drawn, Greedy, Undecided
from strata.model.mtp import Chain, MtpOptions
from strata.model.ops import WINDOW_ROWS, Ops, Pass
from strata.model.state import MtpState, State
from strata.model.tally import Tally
from strata.model.weights import Mtp, Weights

PASS_ROWS = 512
"""Rows a prompt pass computes at once on the CPU; passes end at absolute multiples of a device's `Ops.pass_rows`."""

CHUNK = 64
"""Rows that the delta rule takes together, from an absolute multiple on: where passes end within, bytes differ."""


@dataclass(frozen=True, slots=True)
class Network:
    """A model bound to a device. It keeps nothing between calls; all memory is in the `State` passed in.

    Attributes:
        config: dimensions.
        weights: weights.
        ops: operations of the device.
        drafts: keep what the draft head needs while committing, so that `draft` can be called.
        mtp: variants of the draft head.
    """

    config: ModelConfig
    weights: Weights
    ops: Ops
    drafts: bool = False
    mtp: MtpOptions = field(default_factory=MtpOptions)

    def __post_init__(self) -> None:
        """Refuse drafts without a head (case M11)."""
        if self.drafts and self.weights.mtp is None:
            raise RequestError("drafts were asked for, but the file holds no draft head (no nextn tensors)")

    def new_state(self) -> State:
        """The state of a conversation that has not begun."""
        return self.ops.new_state(drafts=self.drafts)

    def fits(self, needs: Sequence[tuple[State | None, int]]) -> bool:
        """Whether the device has memory for conversations to hold so many tokens each, all at once.

        None stands for a conversation that has no memory there yet.
        """
        return self.ops.fits(needs)

    @property
    def pass_rows(self) -> int:
        """Most rows that are read at once."""
        return self.ops.pass_rows

    @property
    def same_forms(self) -> bool:
        """Whether a token gets the same bytes as part of a prompt and in a window."""
        return self.ops.same_forms

    def read(self, state: State, ids: list[int], positions: Tensor | None = None) -> Tensor:
        """Read prompt tokens into `state`.

        Args:
            state: grows by len(ids) tokens.
            ids: token ids, at least one.
            positions: int64 [T, 3] (t, h, w) positions; None for text, which continues at the next position.

        Returns:
            float32 [T, S*H], the residual of every row; `logits` turns rows of it into predictions.
        """
        positions = self._check(state, ids, positions)
        residuals: list[Tensor] = []
        first, short, where = 0, False, torch.device("cpu")
        while first < len(ids):
            last = min(len(ids), first + self.ops.pass_rows - state.length % self.ops.pass_rows)
            rows = self.ops.ready(last - first)
            if rows < last - first:
                last, short = first + max(1, rows - (state.length + rows) % CHUNK), True
            done = self._passed(state, ids[first:last], positions[first:last])
            if done is None:
                continue
            self._commit(state, done, last - first)
            self.settle(state)
            residuals.append(done.residual)
            where = done.residual.device
            if short:  # there is no memory for a pass and the rows of all that were to be one
                residuals = [one.cpu() for one in residuals]
            first = last
        self.ops.check()
        found = residuals[0] if len(residuals) == 1 else torch.cat(residuals)
        return found.to(where) if short else found

    def _passed(self, state: State, ids: list[int], positions: Tensor) -> Pass | None:
        """A pass over a prompt; None if it was given up, for it was too long."""
        try:
            return forward.run(self.ops, self.weights, forward.segments([(state, ids, positions)]), window=False)[0]
        except torch.OutOfMemoryError as error:
            why = str(error).partition("\n")[0]
            failed = error.with_traceback(None)  # out of here, so that nothing holds on to what was computed
        if not self.ops.shorten(len(ids), why):
            raise failed
        return None

    def window(self, batch: Sequence[tuple[State, Sequence[int]]]) -> list[Pass]:
        """Compute text tokens behind their states without committing any.

        Args:
            batch: conversations with the ids to compute behind each: 1-8 rows in all.

        Returns:
            What each conversation's rows computed. Row i gets the bytes it would get alone after the rows before it.

        Raises:
            RequestError: too many rows, none, an id outside the vocabulary, or one state twice.
        """
        count = sum(len(ids) for _, ids in batch)
        if count > WINDOW_ROWS:
            raise RequestError(f"a window has at most {WINDOW_ROWS} rows, not {count}")
        if not batch:
            raise RequestError("a window needs at least one conversation")
        if len({id(state) for state, _ in batch}) < len(batch):
            raise RequestError("a conversation may be in a window once only; its rows go together")
        laid = forward.segments([(state, ids, self._check(state, ids, None)) for state, ids in batch])
        return forward.run(self.ops, self.weights, laid, window=True)

    def commit(self, state: State, done: Pass, n: int) -> None:
        """Accept the first n rows of what `state` computed in the last window."""
        if not 0 <= n <= len(done.ids):
            raise RequestError(f"cannot commit {n} of {len(done.ids)} rows")
        self._commit(state, done, n)

    def logits(self, residual: Tensor) -> Tensor:
        """Predictions float32 [T, V] of residual rows [T, S*H]."""
        return forward.head(self.ops, self.weights.mixer, self.weights.head, residual)

    def predictions(self, passes: Sequence[Pass]) -> NDArray[np.float32]:
        """Predictions float32 [T, V] of all rows of a window."""
        ready = [done.logits for done in passes if done.logits is not None]
        if len(ready) == len(passes):
            found = _on_host(ready[0] if len(ready) == 1 else torch.cat(ready))
        else:
            found = _on_host(self.logits(torch.cat([done.residual for done in passes])))
        self.ops.check()
        return found

    def decide(self, done: Sequence[tuple[State, Pass]], rules: Sequence[Greedy]) -> list[Decision] | None:
        """Choose and commit the likeliest tokens of a window on the device, without bringing predictions to the host.

        Args:
            done: every conversation of the last window with its pass, in order.
            rules: how to choose for each.

        Returns:
            What `commit` and a choice from `predictions` would have come to, already committed; None where the device
            leaves both to the host.
        """
        if any(isinstance(state.mtp, MtpState) for state, _ in done):  # that head follows commits of the host
            return None
        decisions = self.ops.decide(done, rules)
        for (state, one), decision in zip(done, decisions or (), strict=False):
            self._follow(state, one, len(decision.ids))
        return decisions

    @property
    def miss(self) -> float:
        """Seconds that one miss of an expert adds to a window; 0 where all lie where they are computed."""
        return self.ops.miss

    def met(self) -> Tally | None:
        """Where the last window's experts were; None where they have one place."""
        return self.ops.met()

    def draw(self, done: Sequence[tuple[State, Pass]], rules: Sequence[Drawn]) -> list[Decision | Undecided] | None:
        """As `decide` for tokens that are drawn; asked where `looks` is set.

        Returns:
            For each conversation a decision, already committed, or what was found for its rows, and the choice is the
            host's; None where the device leaves all to the host.
        """
        if any(isinstance(state.mtp, MtpState) for state, _ in done):
            return None
        decisions = self.ops.draw(done, rules)
        for (state, one), decision in zip(done, decisions or (), strict=False):
            if isinstance(decision, Decision):
                self._follow(state, one, len(decision.ids))
        return decisions

    @property
    def looks(self) -> bool:
        """Whether `look` is worth asking."""
        return self.ops.looks

    def look(self, done: Sequence[Pass], wishes: Sequence[Wish]) -> list[list[Candidates]] | None:
        """Find the tokens among which a choice has to be made, without bringing predictions to the host.

        Args:
            done: the passes of every conversation of the last window, in order.
            wishes: what is asked of each.

        Returns:
            What was found for the rows of each; None where the host needs `predictions`.
        """
        return self.ops.look(done, wishes)

    def settle(self, state: State) -> None:
        """Feed the draft head what commits have left for it, so that the state can be kept or compared."""
        if state.mtp is not None and len(state.mtp.pending_ids):
            assert self.weights.mtp is not None
            mtp.feed(self.ops, self.config, self.weights.mtp, state, self.mtp)

    def draft(self, state: State, token: int, depth: int, floor: float = 0.0) -> list[Tensor]:
        """Logits [V] of up to `depth` chained draft steps, given the token that follows the committed ones.

        The chain ends before a step whose best token is less probable than `floor`.
        """
        return mtp.draft(self.ops, self.config, self._head(state), state, token, depth, self.mtp, floor)

    def guess(self, state: State, token: int, depth: int, floor: float = 0.0) -> Chain:
        """The likeliest tokens of `draft`, and how many steps were computed for them."""
        return mtp.guess(self.ops, self.config, self._head(state), state, token, depth, self.mtp, floor)

    def _head(self, state: State) -> Mtp:
        """The draft head, if it can draft behind this state."""
        if self.weights.mtp is None or state.mtp is None:
            raise RequestError("this state was begun without drafts")
        if state.length == 0:
            raise RequestError("drafting needs at least one committed token")
        return self.weights.mtp

    def _commit(self, state: State, done: Pass, n: int) -> None:
        self.ops.commit(state, done, n)
        self._follow(state, done, n)

    def _follow(self, state: State, done: Pass, n: int) -> None:
        """Leave accepted rows to the draft head."""
        if state.mtp is not None:
            mtp.follow(state, done, n)
            if len(state.mtp.pending_ids) > mtp.PENDING:
                self.settle(state)

    def _check(self, state: State, ids: Sequence[int], positions: Tensor | None) -> Tensor:
        if not ids:
            raise RequestError("no tokens to read")
        bad = [i for i in ids if not 0 <= i < self.config.V]
        if bad:
            raise RequestError(f"token id {bad[0]} is outside the vocabulary of {self.config.V}")
        if positions is None:
            return torch.arange(state.next_position, state.next_position + len(ids))[:, None].repeat(1, 3)
        if positions.shape != (len(ids), 3):
            raise RequestError(f"positions must be [{len(ids)}, 3], not {list(positions.shape)}")
        if not self.ops.pictures and bool((positions != positions[:, :1]).any()):
            raise RequestError("pictures cannot be read on this device yet; run the model with --device cpu")
        return positions


def _on_host(x: Tensor) -> NDArray[np.float32]:
    """A copy in memory of its own where `x` is on a GPU: pinned, because a row of logits is a megabyte."""
    if x.device.type == "cuda":
        staged = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        staged.copy_(x, non_blocking=True)
        torch.cuda.current_stream(x.device).synchronize()
        x = staged
    return x.numpy()
