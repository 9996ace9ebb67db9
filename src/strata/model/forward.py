"""The forward pass, written once over `Ops` (model spec, sections 4, 5 and 13).

A pass computes the rows of one or several conversations together, so that weights are read once for all of them, and
changes nothing that any of the states has committed; `Ops.commit` then accepts the first n rows of one of them.
Matrices meet all rows at once; what looks at a conversation's own past takes the batch. So a row's bytes depend on its
conversation alone.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from strata.model import weights
from strata.model.ops import Batch, Ops, Pass, Segment, Streams
from strata.model.state import State


def segments(batch: Sequence[tuple[State, Sequence[int], Tensor]]) -> list[Segment]:
    """Lay conversations (state, ids, positions [T, 3]) side by side."""
    laid, first = [], 0
    for state, ids, positions in batch:
        laid.append(Segment(state, tuple(ids), positions, slice(first, first + len(ids))))
        first += len(ids)
    return laid


def run(ops: Ops, w: weights.Weights, laid: Sequence[Segment], *, window: bool) -> list[Pass]:
    """Compute rows behind their states; the rows of attention caches are written but not committed."""
    batch = ops.begin(laid, window=window)
    ops = ops.over(batch)
    residual = ops.replay(batch, lambda: trunk(ops, w, batch), lambda x: head(ops, w.mixer, w.head, x))
    return ops.passes(batch, residual)


def trunk(ops: Ops, w: weights.Weights, batch: Batch) -> Streams:
    """All layers."""
    # Rows of the n-gram table depend on ids alone: they are on their way while the layers before are computed.
    asked = {
        number: ops.ngram_ask(ops.ngram_numbers(batch), layer.ple)
        for number, layer in enumerate(w.layers)
        if layer.ple is not None
    }
    residual = ops.streams(ops.embed(batch, w.embed))
    for number, layer in enumerate(w.layers):
        ops.layer(batch, number)
        if layer.ple is not None:
            residual = _embedded(ops, layer.ple, residual, asked.pop(number), batch)
        residual = block(ops, layer, residual, batch, number, sparse=True)
    ops.layer(batch, len(w.layers))
    return residual


def _embedded(ops: Ops, w: weights.Ple, residual: Streams, asked: Any, batch: Batch) -> Streams:
    """Add n-grams to the streams. Nothing of it outlives the call: its rows are as wide as the streams."""
    return ops.ngram_smooth(residual, ops.ngram_gate(residual, ops.ngram_rows(asked, w), w), batch, w)


def block(ops: Ops, layer: weights.Layer, residual: Streams, batch: Batch, number: int, *, sparse: bool) -> Streams:
    """One layer: mixer and experts, each between a read and a write of the streams."""
    m, inject = ops.hc_read(residual, layer.attn_hc)
    residual = ops.hc_write(residual, _mixed(ops, layer.mixer, m, batch, number, sparse=sparse), inject)
    m, inject = ops.hc_read(residual, layer.mlp_hc)
    out = ops.experts(m, ops.route(m, layer.moe), layer.moe)
    return ops.hc_write(residual, out, inject)


def _mixed(ops: Ops, w: weights.Gdn | weights.Qsa, m: Any, batch: Batch, number: int, *, sparse: bool) -> Any:
    """What a mixer adds. The streams alone hold on to it."""
    if isinstance(w, weights.Gdn):
        return ops.gdn_output(ops.gdn_mix(ops.gdn_project(m, w), batch, number, w), w)
    return ops.qsa_output(ops.qsa_attend(ops.qsa_project(m, batch, w), batch, number, w, sparse=sparse), w)


def head(ops: Ops, mixer: weights.HyperConnection, matrix: weights.Matrix, residual: Streams) -> Tensor:
    """Logits [T, V] of residual rows; the mixer stands in for a final norm."""
    y, _ = ops.hc_read(residual, mixer)
    return ops.linear(y, matrix)
