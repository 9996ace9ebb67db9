"""The draft head (model spec, section 13).

Cell i combines token i's residual with token i+1, sits at token i's position and predicts token i+2. The trunk's commit
leaves the inputs of the cells it completes (`follow`). They are computed together with the first step of the next
draft, which costs hardly more than that step alone, or by `feed`. Drafting writes cells behind them, which are
overwritten later.

Devices whose states hold another kind of memory for the head do all this in their own way (`strata.ops.gpu.draft`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.forward import block, head
from strata.model.ops import Ops, Pass, Segment
from strata.model.state import MtpState, State

PENDING = 64
"""Most cells that wait; 40 KB each in the real model."""


@dataclass(frozen=True, slots=True)
class MtpOptions:
    """Where implementations of the head differ. They change how often drafts are taken, never the text."""

    norm_per_stream: bool = False  # one variance over all S*H numbers, or one per stream
    sparse: bool = False  # dense attention, or the indexer's selection


class Chain(NamedTuple):
    """What the draft head guesses.

    Attributes:
        ids: its tokens, as far as it was sure of them.
        steps: that were computed for it.
    """

    ids: tuple[int, ...]
    steps: int


def run(
    ops: Ops,
    c: ModelConfig,
    w: weights.Mtp,
    memory: MtpState,
    ids: list[int],
    residual: Tensor,
    positions: Tensor,
    options: MtpOptions,
) -> Tensor:
    """Compute T cells behind the committed ones.

    Args:
        ops: operations.
        c: dimensions.
        w: the head.
        memory: its state; rows are written, not committed.
        ids: T tokens, each the one after the residual's.
        residual: float32 [T, S*H].
        positions: int64 [T, 3], of the residuals' tokens.
        options: variants.

    Returns:
        The head's own residual [T, S*H].
    """
    batch = ops.begin([Segment(memory, tuple(ids), positions, slice(0, len(ids)))], window=True)
    ops = ops.over(batch)
    e = ops.linear(ops.rms(ops.embed(batch, w.embed), w.enorm), w.fc_embedding)
    normed = ops.rms(residual, w.hnorm, c.S if options.norm_per_stream else 1)
    streams = [e + ops.linear(part, w.fc_hidden) for part in normed.split(c.H, -1)]
    return block(ops, w.layer, torch.cat(streams, -1), batch, 0, sparse=options.sparse)


def follow(state: State, done: Pass, n: int) -> None:
    """Note the inputs of the cells that the n tokens just committed to `state` complete."""
    memory: Any = state.mtp
    assert memory is not None
    if n == 0:
        return
    if not isinstance(memory, MtpState):
        memory.follow(done, n, state.length)
        return
    residual = torch.cat((memory.residual[None], done.residual[: n - 1]))
    first = 0 if state.length > n else 1  # the very first token completes no cell
    memory.pending.write(residual[first:])
    memory.pending.commit(n - first)
    memory.pending_ids += done.ids[first:n]
    memory.residual = done.residual[n - 1].clone()


def feed(ops: Ops, c: ModelConfig, w: weights.Mtp, state: State, options: MtpOptions) -> None:
    """Compute and commit the cells that wait."""
    memory: Any = state.mtp
    assert memory is not None
    if not isinstance(memory, MtpState):
        memory.feed(w, options)
        return
    count, cells = len(memory.pending_ids), memory.positions.length
    positions = state.positions.upto(state.length)[cells : cells + count]
    run(ops, c, w, memory, list(memory.pending_ids), memory.pending.upto(count), positions, options)
    _settled(memory, c)


def draft(
    ops: Ops,
    c: ModelConfig,
    w: weights.Mtp,
    state: State,
    token: int,
    depth: int,
    options: MtpOptions,
    floor: float = 0.0,
) -> list[Tensor]:
    """Logits [V] of up to `depth` chained draft steps after `token`, the token that follows the committed ones.

    Greedy: each step feeds the next with its most probable token. The chain ends before a step whose token is less
    probable than `floor`. Nothing is committed but the cells that waited.
    """
    memory: Any = state.mtp
    assert memory is not None
    if not isinstance(memory, MtpState):
        drawn: list[Tensor] = memory.draft(w, token, depth, options, floor)
        return drawn
    cells = state.length - 1
    positions = state.positions.upto(state.length)[memory.positions.length :]
    residual = torch.cat((memory.pending.upto(len(memory.pending_ids)), memory.residual[None]))
    ids, steps = [*memory.pending_ids, token], []
    for step in range(depth):
        residual = run(ops, c, w, memory, ids, residual, positions, options)[-1:]
        if step == 0:
            _settled(memory, c)
        logits = head(ops, w.mixer, w.head, residual)[0]
        if floor > 0 and float(logits.softmax(-1).max()) < floor:
            break
        steps.append(logits)
        memory.positions.commit(1)
        memory.kv.commit(1, c.qsa.ratio)
        ids, positions = [int(logits.argmax())], torch.full((1, 3), state.next_position + step)
    memory.positions.truncate(cells)
    memory.kv.truncate(cells, c.qsa.ratio)
    return steps


def guess(
    ops: Ops,
    c: ModelConfig,
    w: weights.Mtp,
    state: State,
    token: int,
    depth: int,
    options: MtpOptions,
    floor: float = 0.0,
) -> Chain:
    """The tokens of `draft`; a device may chain the steps by itself, and say all of them at once."""
    memory: Any = state.mtp
    if not isinstance(memory, MtpState):
        found: Chain = memory.guess(w, token, depth, options, floor)
        return found
    steps = draft(ops, c, w, state, token, depth, options, floor)
    return Chain(tuple(int(logits.argmax()) for logits in steps), min(depth, len(steps) + 1))


def _settled(memory: MtpState, c: ModelConfig) -> None:
    """Count the cells just computed that waited; rows behind them stay uncounted."""
    count = len(memory.pending_ids)
    memory.positions.commit(count)
    memory.kv.commit(count, c.qsa.ratio)
    memory.pending.truncate(0)
    memory.pending_ids = ()
