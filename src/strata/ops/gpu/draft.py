"""The draft head on a GPU: cells of its own in a pool of its own, fed lazily as on the CPU (`strata.model.mtp`).

Its layer runs on the kernels of the trunk's windows, up to eight cells as one captured graph with the head's
predictions. Guesses are a chain of such windows with one row, all of it one captured graph: a step takes its token and
its residual from the one before where they are, and the host reads all tokens at once (`strata.ops.gpu.chain`).

Attention is the indexer's selection: all cells up to the budget, and beyond it the chosen blocks, where the CPU's head
attends to every cell. That changes how often drafts are taken, never the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.forward import block, head
from strata.model.mtp import Chain
from strata.model.ops import WINDOW_ROWS, Pass, Segment
from strata.ops.gpu.chain import Chains
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.gpu.rows import Rows, Streams, linear
from strata.ops.gpu.size import USUAL
from strata.ops.matvec.triton import quantise
from strata.ops.norm.reference import rms_grouped
from strata.ops.prompt.batch import PromptBatch, PromptRows, PromptStreams

if TYPE_CHECKING:
    from strata.model.mtp import MtpOptions
    from strata.ops.gpu.batch import GpuBatch
    from strata.ops.gpu.ops import GpuOps

MOST_RECORDED = 1024
"""Rows of passes that may be recorded."""


@dataclass(eq=False, slots=True)
class GpuMtp:
    """What the draft head remembers of a conversation; `strata.model.state.MtpState` is the same on the CPU.

    Attributes:
        head: what computes.
        cells: the cells that were computed.
        residual: float32 [S*H], of the last committed token; zeros before the first.
        pending: inputs of the cells that wait, float32 [n, S*H] each.
        pending_ids: the token after each of them.
    """

    head: "DraftHead" = field(repr=False)
    cells: GpuState
    residual: Tensor
    pending: list[Tensor] = field(default_factory=list)
    pending_ids: tuple[int, ...] = ()

    def clone(self) -> "GpuMtp":
        """An independent copy."""
        return GpuMtp(self.head, self.cells.clone(), self.residual.clone(), list(self.pending), self.pending_ids)

    def follow(self, done: Pass, n: int, length: int) -> None:
        """See `strata.model.mtp.follow`; the conversation now has `length` tokens."""
        residual = torch.cat((self.residual[None], done.residual[: n - 1]))
        first = 0 if length > n else 1
        if n > first:
            self.pending.append(residual[first:])
            self.pending_ids += done.ids[first:n]
        self.residual = done.residual[n - 1].clone()

    def feed(self, w: weights.Mtp, options: "MtpOptions") -> None:
        """See `strata.model.mtp.feed`."""
        waiting, ids = torch.cat(self.pending), self.pending_ids
        at = 0
        while at < len(ids):
            # A few cells go as windows, which are recorded; a prompt's in one pass.
            count = min(len(ids) - at, WINDOW_ROWS if len(ids) <= 8 * WINDOW_ROWS else USUAL)
            self.head.run(w, self.cells, ids[at : at + count], waiting[at : at + count], options)
            self.cells.length += count
            at += count
        self.pending, self.pending_ids = [], ()

    def draft(self, w: weights.Mtp, token: int, depth: int, options: "MtpOptions", floor: float = 0.0) -> list[Tensor]:
        """See `strata.model.mtp.draft`."""
        room = WINDOW_ROWS - 1
        if len(self.pending_ids) > room:
            self.feed(w, options)
        committed = self.cells.length + len(self.pending_ids)
        ids, residual = [*self.pending_ids, token], torch.cat((*self.pending, self.residual[None]))
        steps: list[Tensor] = []
        for step in range(depth):
            done = self.head.run(w, self.cells, ids, residual, options)
            if step == 0:
                self.cells.length, self.pending, self.pending_ids = committed, [], ()
            assert done.logits is not None
            logits = done.logits[-1].clone()
            if floor > 0 and float(logits.softmax(-1).max()) < floor:
                break
            steps.append(logits)
            self.cells.length += 1
            ids, residual = [int(logits.argmax())], done.residual[-1:]
        self.cells.length = committed
        return steps

    def guess(self, w: weights.Mtp, token: int, depth: int, options: "MtpOptions", floor: float = 0.0) -> Chain:
        """See `strata.model.mtp.guess`."""
        if not depth:
            return Chain((), 0)
        if len(self.pending_ids) > WINDOW_ROWS - 1:
            self.feed(w, options)
        ids, residual = [*self.pending_ids, token], torch.cat((*self.pending, self.residual[None]))
        found = self.head.chain(w, self.cells, ids, residual, depth, options, floor)
        self.cells.length += len(self.pending_ids)
        self.pending, self.pending_ids = [], ()
        return Chain(found, depth)


class DraftHead:
    """Runs the head's layer, and has the memory of its cells.

    Args:
        ops: operations with the dimensions of `strata.ops.gpu.pool.head_config`.
        pool: memory, with as many cells as the trunk's.
        config: dimensions of the whole model.
        device: where.
    """

    def __init__(self, ops: "GpuOps", pool: Pool, config: ModelConfig, device: torch.device) -> None:
        self.pool = pool
        self._ops: Any = ops
        self._c = config
        self._device = device
        self._inputs: dict[int, Tensor] = {}
        self._chains = Chains(ops, pool, config, device)

    def new_state(self) -> GpuMtp:
        """What the head remembers of a conversation that has not begun."""
        width = self._c.S * self._c.H
        return GpuMtp(self, self.pool.new_state(), torch.zeros(width, dtype=torch.float32, device=self._device))

    def run(self, w: weights.Mtp, cells: GpuState, ids: Sequence[int], residual: Tensor, options: "MtpOptions") -> Pass:
        """Compute cells behind the committed ones, without counting them; a window's come with predictions.

        More than a window has room for are those of a prompt, and the caller counts all of them.

        Args:
            w: the head, on the device.
            cells: the conversation's.
            ids: T tokens, each the one after the residual's.
            residual: float32 [T, S*H].
            options: variants.
        """
        count = len(ids)
        window = count <= WINDOW_ROWS
        # The cell of a token sits at the token's position, and text is all there is.
        positions = torch.arange(cells.length, cells.length + count)[:, None].expand(-1, 3)
        rows = Segment(cast("Any", cells), tuple(ids), positions, slice(0, count))
        batch: GpuBatch | PromptBatch = self._ops.begin([rows], window=window)
        ops = self._ops.over(batch)
        if isinstance(batch, PromptBatch):
            given = self._given(batch.room, residual)
            x = ops.replay(batch, lambda: self._prompt_body(w, given, batch, options), None)
            self.pool.give_back(batch.spare_place)
            self.pool.keep(cells, batch.left, cells.length + count)
            passed: Pass = ops.passes(batch, x)[0]
            return passed
        given = self._given(count, residual)
        x = ops.replay(batch, lambda: self._body(w, given, batch, options), lambda x: head(ops, w.mixer, w.head, x))
        done: Pass = ops.passes(batch, x)[0]
        for place in batch.spare_places:
            self.pool.give_back(place)
        if batch.left is not None:
            self.pool.keep(cells, batch.left, cells.length + count)
        return done

    def chain(
        self, w: weights.Mtp, cells: GpuState, ids: Sequence[int], residual: Tensor, depth: int,
        options: "MtpOptions", floor: float,
    ) -> tuple[int, ...]:  # fmt: skip
        """Compute cells behind the committed ones, and a chain of guesses behind them.

        Args:
            w: as for `run`.
            cells: as for `run`.
            ids: as for `run`, at most `WINDOW_ROWS`.
            residual: as for `run`.
            depth: guesses, at least one.
            options: as for `run`.
            floor: the least probability of a guess; the chain ends before one that has less.
        """

        def step(given: Tensor, batch: "GpuBatch") -> tuple[Tensor, Tensor]:
            x = self._ops.settled(lambda: self._body(w, given, batch, options))[-1:]
            return x, head(self._ops, w.mixer, w.head, Streams(x))

        return self._chains.run(cells, ids, residual, depth, floor, step, options)

    def _given(self, room: int, residual: Tensor) -> Tensor:
        """Residuals where a recorded pass of so many rows reads them, which is where the first one read."""
        if room > MOST_RECORDED:
            return residual
        given = self._inputs.get(room)
        if given is None:
            given = self._inputs[room] = residual.new_zeros((room, residual.shape[1]))
        given[: len(residual)] = residual
        return given

    def _prompt_body(
        self, w: weights.Mtp, residual: Tensor, batch: PromptBatch, options: "MtpOptions"
    ) -> PromptStreams:
        """As `_body`, by the kernels of prompts."""
        c, room, ops = self._c, len(residual), self._ops.over(batch)
        e = ops.linear(_half(self._normed(ops.embed(batch, w.embed).x, w.enorm), batch.counts), w.fc_embedding)
        normed = self._normed(residual, w.hnorm, c.S if options.norm_per_stream else 1)
        hidden = ops.linear(_half(normed.reshape(room * c.S, c.H), batch.counts * c.S), w.fc_hidden)
        streams = (hidden.view(room, c.S, c.H) + e[:, None]).reshape(room, c.S * c.H)
        found: PromptStreams = block(ops, w.layer, PromptStreams(streams, batch.counts), batch, 0, sparse=True)
        return found

    def _normed(self, x: Tensor, w: Tensor, groups: int = 1) -> Tensor:
        return rms_grouped(x, w, groups, self._c.eps)

    def _body(self, w: weights.Mtp, residual: Tensor, batch: "GpuBatch", options: "MtpOptions") -> Streams:
        c, count = self._c, len(residual)
        e = linear(_rows(self._normed(self._ops.embed(batch, w.embed), w.enorm)), w.fc_embedding)
        normed = self._normed(residual, w.hnorm, c.S if options.norm_per_stream else 1)
        hidden = linear(_rows(normed.reshape(count * c.S, c.H)), w.fc_hidden)
        streams = (hidden.view(count, c.S, c.H) + e[:, None]).reshape(count, c.S * c.H)
        found: Streams = block(self._ops, w.layer, Streams(streams), batch, 0, sparse=True)
        return found


def _half(x: Tensor, counts: Tensor) -> PromptRows:
    """Rows for the products of prompts."""
    return PromptRows(x.clamp(-65504.0, 65504.0).half(), counts)


def _rows(x: Tensor) -> Rows:
    """Rows in both forms."""
    x = x.contiguous()
    return Rows(x, quantise(x) if x.shape[1] % 32 == 0 else None)
