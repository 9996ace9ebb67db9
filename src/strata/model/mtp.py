"""The draft head (model spec, section 13).

Cell i combines token i's residual with token i+1, sits at token i's position and predicts token i+2. The trunk's
commit fills the cells of known tokens; drafting writes cells behind them, which the next commit overwrites.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.forward import Pass, attention, feed_forward, head
from strata.model.ops import Ops
from strata.model.state import MtpState, State


@dataclass(frozen=True, slots=True)
class MtpOptions:
    """Where implementations of the head differ. They change how often drafts are taken, never the text."""

    norm_per_stream: bool = False  # one variance over all S*H numbers, or one per stream
    sparse: bool = False  # dense attention, or the indexer's selection


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
    e = ops.linear(ops.rms(w.embed.rows(ids), w.enorm), w.fc_embedding)
    normed = ops.rms(residual, w.hnorm, c.S if options.norm_per_stream else 1)
    streams = [e + ops.linear(part, w.fc_hidden) for part in normed.split(c.H, -1)]
    residual = torch.cat(streams, -1)
    memory.positions.write(positions)
    m, inject = ops.hc_read(residual, w.layer.attn_hc)
    assert isinstance(w.layer.mixer, weights.Qsa)
    assert inject is not None
    out = attention(ops, c, w.layer.mixer, m, ops.angles(positions), memory.kv, memory.positions, sparse=options.sparse)
    return feed_forward(ops, w.layer, ops.hc_write(residual, out, inject))


def follow(ops: Ops, c: ModelConfig, w: weights.Mtp, state: State, done: Pass, n: int, options: MtpOptions) -> None:
    """Fill and commit the cells that the n tokens just committed to `state` complete."""
    memory = state.mtp
    assert memory is not None
    if n == 0:
        return
    before = state.length - n
    residual = torch.cat((memory.residual[None], done.residual[: n - 1]))
    positions = state.positions.upto(state.length)[max(before - 1, 0) : state.length - 1]
    first = 0 if before else 1  # the very first token completes no cell
    ids = list(done.ids[first:n])
    if ids:
        run(ops, c, w, memory, ids, residual[first:], positions, options)
        memory.positions.commit(len(ids))
        memory.kv.commit(len(ids), c.qsa.ratio)
    memory.residual = done.residual[n - 1].clone()


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
    probable than `floor`. Nothing is committed.
    """
    memory = state.mtp
    assert memory is not None
    cells = memory.positions.length
    last = state.positions.upto(state.length)[-1:]
    residual, steps = memory.residual[None], []
    ids = [token]
    for step in range(depth):
        position = last if step == 0 else torch.full((1, 3), state.next_position + step - 1)
        residual = run(ops, c, w, memory, ids, residual, position, options)
        memory.positions.commit(1)
        memory.kv.commit(1, c.qsa.ratio)
        logits = head(ops, w.mixer, w.head, residual)[0]
        if floor > 0 and float(logits.softmax(-1).max()) < floor:
            break
        steps.append(logits)
        ids = [int(logits.argmax())]
    memory.positions.truncate(cells)
    memory.kv.truncate(cells, c.qsa.ratio)
    return steps
