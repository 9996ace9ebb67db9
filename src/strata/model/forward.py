"""The forward pass, written once over `Ops` (model spec, sections 4, 5 and 13).

A pass computes T rows behind a state without changing what the state has committed; `commit` then accepts the first
n of them. A window runs the delta rule row by row, so that any n leaves the bytes of n single steps. A prompt pass
runs it in chunks and is committed whole.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.ops import Angles, GdnInputs, Ops
from strata.model.rows import Rows
from strata.model.state import GdnState, QsaState, State


@dataclass(frozen=True, slots=True)
class Pass:
    """What T rows computed, and what committing some of them needs."""

    ids: tuple[int, ...]
    positions: Tensor  # int64 [T, 3]
    residual: Tensor  # [T, S*H], before the final mixer: the draft head's input
    gdn: tuple[GdnInputs | None, ...]  # by layer; None for attention layers
    after: tuple[Tensor | None, ...]  # the recurrent state after all T rows, by layer
    ngram: Tensor | None  # [T, S*H], rows the convolution of the n-gram branch will look back on


def run(
    ops: Ops, c: ModelConfig, w: weights.Weights, state: State, ids: list[int], positions: Tensor, *, window: bool
) -> Pass:
    """Compute T rows behind `state`; the rows of attention caches are written but not committed."""
    residual = w.embed.rows(ids).repeat(1, c.S)
    state.positions.write(positions)
    angles = ops.angles(positions)
    records: list[GdnInputs | None] = []
    after: list[Tensor | None] = []
    ngram = None
    for layer, memory in zip(w.layers, state.layers, strict=True):
        if layer.ple is not None:
            e = ops.ngram_rows(state.history, ids, layer.ple)
            residual, ngram = ops.ngram_mix(residual, e, state.ngram_tail, layer.ple)
        m, inject = ops.hc_read(residual, layer.attn_hc)
        if isinstance(layer.mixer, weights.Gdn):
            assert isinstance(memory, GdnState)
            x = ops.gdn_project(m, memory.tail, layer.mixer)
            o, s = ops.gdn_step(x, memory.s) if window else ops.gdn_chunk(x, memory.s, state.length)
            out = ops.gdn_output(o, x.z, layer.mixer)
            records.append(x)
            after.append(s)
        else:
            assert isinstance(memory, QsaState)
            out = attention(ops, c, layer.mixer, m, angles, memory, state.positions, sparse=True)
            records.append(None)
            after.append(None)
        residual = _write(ops, residual, out, inject)
        residual = feed_forward(ops, layer, residual)
    return Pass(tuple(ids), positions, residual, tuple(records), tuple(after), ngram)


def attention(
    ops: Ops,
    c: ModelConfig,
    w: weights.Qsa,
    m: Tensor,
    angles: Angles,
    memory: QsaState,
    positions: Rows,
    *,
    sparse: bool,
) -> Tensor:
    """One attention layer on rows `m` [T, H] behind `memory`; writes their keys behind its end."""
    x = ops.qsa_project(m, angles, w)
    memory.k.write(x.k)
    memory.v.write(x.v)
    memory.ik.write(x.ik)
    seen = memory.k.length + m.shape[0]
    old, complete, ratio = memory.blocks.length, seen // c.qsa.ratio, c.qsa.ratio
    if complete > old:
        first = positions.upto(seen)[old * ratio : complete * ratio : ratio]
        raw = memory.ik.upto(seen)[old * ratio : complete * ratio]
        memory.blocks.write(ops.qsa_block_keys(raw, ops.angles(first), w))
    o = ops.qsa_attend(x, memory.k.upto(seen), memory.v.upto(seen), memory.blocks.upto(complete), sparse=sparse)
    return ops.qsa_output(o, x.gate, w)


def feed_forward(ops: Ops, layer: weights.Layer, residual: Tensor) -> Tensor:
    """The second half of a layer: read, experts, write."""
    m, inject = ops.hc_read(residual, layer.mlp_hc)
    out = ops.experts(m, ops.route(m, layer.moe), layer.moe) + ops.shared_expert(m, layer.moe)
    return _write(ops, residual, out, inject)


def head(ops: Ops, mixer: weights.HyperConnection, matrix: weights.Matrix, residual: Tensor) -> Tensor:
    """Logits [T, V] of residual rows; the mixer stands in for a final norm."""
    y, _ = ops.hc_read(residual, mixer)
    return ops.linear(y, matrix)


def commit(ops: Ops, c: ModelConfig, state: State, done: Pass, n: int) -> None:
    """Accept the first n rows of a pass; the others leave no trace."""
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


def _last_rows(old: Tensor, new: Tensor) -> Tensor:
    """As many rows as `old` has, from the end of old and new together."""
    return torch.cat((old, new))[new.shape[0] :]
