"""The forward pass, written once over `Ops` (model spec, sections 4, 5 and 13).

A pass computes the rows of one or several conversations together, so that weights are read once for all of them, and
changes nothing that any of the states has committed; `commit` then accepts the first n rows of one of them. Matrices
meet all rows at once; what looks at a conversation's own past (convolutions, the delta rule, attention, the n-gram
hash) goes segment by segment. So a row's bytes depend on its conversation alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.ops import Angles, GdnInputs, Ops, QsaInputs
from strata.model.rows import Rows
from strata.model.state import GdnState, QsaState, State


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one conversation in a pass."""

    state: State
    ids: tuple[int, ...]
    positions: Tensor  # int64 [T, 3]
    rows: slice  # where they lie among the rows of the pass


@dataclass(frozen=True, slots=True)
class Pass:
    """What T rows of one conversation computed, and what committing some of them needs."""

    ids: tuple[int, ...]
    positions: Tensor  # int64 [T, 3]
    residual: Tensor  # [T, S*H], before the final mixer: the draft head's input
    gdn: tuple[GdnInputs | None, ...]  # by layer; None for attention layers
    after: tuple[Tensor | None, ...]  # the recurrent state after all T rows, by layer
    ngram: Tensor | None  # [T, S*H], rows the convolution of the n-gram branch will look back on


@dataclass(slots=True)
class _Record:
    """What a pass notes of one segment on its way through the layers."""

    gdn: list[GdnInputs | None]
    after: list[Tensor | None]
    ngram: Tensor | None = None


def segments(batch: Sequence[tuple[State, Sequence[int], Tensor]]) -> list[Segment]:
    """Lay conversations (state, ids, positions [T, 3]) side by side."""
    laid, first = [], 0
    for state, ids, positions in batch:
        laid.append(Segment(state, tuple(ids), positions, slice(first, first + len(ids))))
        first += len(ids)
    return laid


def run(ops: Ops, c: ModelConfig, w: weights.Weights, batch: Sequence[Segment], *, window: bool) -> list[Pass]:
    """Compute rows behind their states; the rows of attention caches are written but not committed."""
    residual = w.embed.rows([i for segment in batch for i in segment.ids]).repeat(1, c.S)
    for segment in batch:
        segment.state.positions.write(segment.positions)
    angles = ops.angles(torch.cat([segment.positions for segment in batch]))
    records = [_Record([], []) for _ in batch]
    for number, layer in enumerate(w.layers):
        if layer.ple is not None:
            residual = _ngram(ops, layer.ple, residual, batch, records)
        m, inject = ops.hc_read(residual, layer.attn_hc)
        if isinstance(layer.mixer, weights.Gdn):
            out = _gdn(ops, layer.mixer, m, number, batch, records, window=window)
        else:
            out = _qsa(ops, c, layer.mixer, m, angles, number, batch, records)
        residual = _write(ops, residual, out, inject)
        residual = feed_forward(ops, layer, residual)
    return [
        Pass(s.ids, s.positions, residual[s.rows], tuple(record.gdn), tuple(record.after), record.ngram)
        for s, record in zip(batch, records, strict=True)
    ]


def _ngram(ops: Ops, w: weights.Ple, residual: Tensor, batch: Sequence[Segment], records: Sequence[_Record]) -> Tensor:
    """Add the n-gram embedding: hash and smoothing by conversation, one read of the table for all."""
    numbers = np.concatenate([ops.ngram_numbers(s.state.history, s.ids) for s in batch])
    x = ops.ngram_gate(residual, ops.ngram_rows(numbers, w), w)
    parts = []
    for s, record in zip(batch, records, strict=True):
        own = x.part(s.rows)
        parts.append(ops.ngram_smooth(residual[s.rows], own, s.state.ngram_tail, w))
        record.ngram = own.normed
    return _joined(parts)


def _gdn(
    ops: Ops,
    w: weights.Gdn,
    m: Tensor,
    number: int,
    batch: Sequence[Segment],
    records: Sequence[_Record],
    *,
    window: bool,
) -> Tensor:
    """One recurrent layer: convolution and delta rule by conversation."""
    projected = ops.gdn_project(m, w)
    parts = []
    for s, record in zip(batch, records, strict=True):
        memory = s.state.layers[number]
        assert isinstance(memory, GdnState)
        x = ops.gdn_convolve(projected.part(s.rows), memory.tail, w)
        o, after = ops.gdn_step(x, memory.s) if window else ops.gdn_chunk(x, memory.s, s.state.length)
        parts.append(o)
        record.gdn.append(x)
        record.after.append(after)
    return ops.gdn_output(_joined(parts), projected.z, w)


def _qsa(
    ops: Ops,
    c: ModelConfig,
    w: weights.Qsa,
    m: Tensor,
    angles: Angles,
    number: int,
    batch: Sequence[Segment],
    records: Sequence[_Record],
) -> Tensor:
    """One attention layer: keys and attention by conversation."""
    x = ops.qsa_project(m, angles, w)
    parts = []
    for s, record in zip(batch, records, strict=True):
        memory = s.state.layers[number]
        assert isinstance(memory, QsaState)
        parts.append(attend(ops, c, w, x.part(s.rows), memory, s.state.positions, sparse=True))
        record.gdn.append(None)
        record.after.append(None)
    return ops.qsa_output(_joined(parts), x.gate, w)


def attend(
    ops: Ops, c: ModelConfig, w: weights.Qsa, x: QsaInputs, memory: QsaState, positions: Rows, *, sparse: bool
) -> Tensor:
    """Attention of one conversation's rows behind `memory` [T, nh, hd]; writes their keys behind its end."""
    memory.k.write(x.k)
    memory.v.write(x.v)
    memory.ik.write(x.ik)
    seen = memory.k.length + x.k.shape[0]
    old, complete, ratio = memory.blocks.length, seen // c.qsa.ratio, c.qsa.ratio
    if complete > old:
        first = positions.upto(seen)[old * ratio : complete * ratio : ratio]
        raw = memory.ik.upto(seen)[old * ratio : complete * ratio]
        memory.blocks.write(ops.qsa_block_keys(raw, ops.angles(first), w))
    return ops.qsa_attend(x, memory.k.upto(seen), memory.v.upto(seen), memory.blocks.upto(complete), sparse=sparse)


def feed_forward(ops: Ops, layer: weights.Layer, residual: Tensor) -> Tensor:
    """The second half of a layer: read, experts, write."""
    m, inject = ops.hc_read(residual, layer.mlp_hc)
    out = ops.experts(m, ops.route(m, layer.moe), layer.moe) + ops.shared_expert(m, layer.moe)
    return _write(ops, residual, out, inject)


def head(ops: Ops, mixer: weights.HyperConnection, matrix: Tensor, residual: Tensor) -> Tensor:
    """Logits [T, V] of residual rows; the mixer stands in for a final norm."""
    y, _ = ops.hc_read(residual, mixer)
    return ops.linear(y, matrix)


def commit(ops: Ops, c: ModelConfig, state: State, done: Pass, n: int) -> None:
    """Accept the first n rows of a conversation's pass; the others leave no trace."""
    for memory, x, s in zip(state.layers, done.gdn, done.after, strict=True):
        if isinstance(memory, QsaState):
            memory.commit(n, c.qsa.ratio)
            continue
        assert x is not None
        assert s is not None
        kept = x.first(n)
        memory.s = s if n == len(done.ids) else ops.gdn_advance(kept, memory.s)
        memory.tail = _last_rows(memory.tail, kept.u)
    if done.ngram is not None:
        state.ngram_tail = _last_rows(state.ngram_tail, done.ngram[:n])
    state.history = (*state.history, *done.ids[:n])[n:]
    state.positions.commit(n)
    state.length += n
    if n:
        state.next_position = max(state.next_position, int(done.positions[:n].max()) + 1)


def _write(ops: Ops, residual: Tensor, out: Tensor, inject: Tensor | None) -> Tensor:
    assert inject is not None, "only a final mixer lacks inject"
    return ops.hc_write(residual, out, inject)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _last_rows(old: Tensor, new: Tensor) -> Tensor:
    """As many rows as `old` has, from the end of old and new together."""
    return torch.cat((old, new))[new.shape[0] :]
