"""The operations on the CPU. Every call delegates to the formula's own file, or to the kernel beside it.

In float64, which only comparisons use, the plain formulas run.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.model import weights
from strata.model.candidates import Wish
from strata.model.config import ModelConfig, Ple
from strata.model.decision import Drawn, Greedy
from strata.model.kv import Codec
from strata.model.ops import Angles, GdnProjected, NgramGated, Pass, QsaInputs, Route, Segment
from strata.model.state import GdnState, QsaState, State
from strata.ops import conversation
from strata.ops.conversation import CpuBatch, CpuPass, joined
from strata.ops.gdn import kernel as delta_rule
from strata.ops.gdn import project as gdn
from strata.ops.gdn import recurrent
from strata.ops.hyper_connection import reference as hc
from strata.ops.linear.stored import linear
from strata.ops.moe import held
from strata.ops.moe import reference as moe
from strata.ops.ngram import hash as ngram_hash
from strata.ops.ngram import mix as ngram
from strata.ops.norm.reference import rms_grouped
from strata.ops.qsa import attend
from strata.ops.qsa import kernel as attention
from strata.ops.qsa import project as qsa
from strata.ops.qsa import reference as plain_attention
from strata.ops.qsa import stored as stored_attention
from strata.ops.rope import reference as rope


class CpuOps:
    """`strata.model.ops.Ops` in torch and Numba."""

    form = "cpu"
    pictures = True
    same_forms = True
    pass_rows = 512
    miss = 0.0
    looks = False

    def __init__(self, config: ModelConfig) -> None:
        self._c = config

    def new_state(self, *, drafts: bool) -> State:
        """See `Ops.new_state`."""
        return State.empty(self._c, drafts=drafts)

    def fits(self, needs: Sequence[tuple[State | None, int]]) -> bool:  # noqa: ARG002  # states grow in main memory
        """See `Ops.fits`."""
        return True

    def ready(self, rows: int) -> int:
        """See `Ops.ready`."""
        return rows

    def shorten(self, rows: int, why: str) -> bool:  # noqa: ARG002  # memory is the system's
        """See `Ops.shorten`."""
        return False

    def over(self, batch: CpuBatch) -> "CpuOps":  # noqa: ARG002  # one kind
        """See `Ops.over`."""
        return self

    def begin(self, segments: Sequence[Segment], *, window: bool) -> CpuBatch:  # noqa: ARG002  # always row by row
        """See `Ops.begin`. A prompt pass gives a row the bytes a window gives it, wherever the rows are cut."""
        return conversation.begin(segments, self.angles)

    def layer(self, batch: CpuBatch, number: int) -> None:  # noqa: ARG002  # they come in order
        """See `Ops.layer`."""
        batch.layers.append(time.perf_counter_ns())

    def replay(self, batch: CpuBatch, body: Callable[[], Tensor], head: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: ARG002  # nothing to record
        """See `Ops.replay`."""
        return body()

    def passes(self, batch: CpuBatch, residual: Tensor) -> list[Pass]:
        """See `Ops.passes`."""
        return list(conversation.passes(batch, residual))

    def check(self) -> None:
        """See `Ops.check`; everything is where it is computed."""

    def met(self) -> None:
        """See `Ops.met`."""

    def commit(self, state: State, done: Pass, n: int) -> None:
        """See `Ops.commit`."""
        assert isinstance(done, CpuPass)
        conversation.commit(state, done, n, self._c.qsa.ratio, delta_rule_advance)

    def decide(self, done: Sequence[tuple[State, Pass]], rules: Sequence[Greedy]) -> None:
        """See `Ops.decide`; the predictions are where the host chooses."""

    def draw(self, done: Sequence[tuple[State, Pass]], rules: Sequence[Drawn]) -> None:
        """See `Ops.draw`; likewise."""

    def look(self, done: Sequence[Pass], wishes: Sequence[Wish]) -> None:
        """See `Ops.look`; likewise."""

    def linear(self, x: Tensor, w: weights.Matrix) -> Tensor:
        """See `Ops.linear`."""
        return linear(x, w)

    def rms(self, x: Tensor, w: Tensor, groups: int = 1) -> Tensor:
        """See `Ops.rms`."""
        return rms_grouped(x, w, groups, self._c.eps)

    def streams(self, x: Tensor) -> Tensor:
        """See `Ops.streams`."""
        return x.repeat(1, self._c.S)

    def embed(self, batch: CpuBatch, table: weights.RowTable) -> Tensor:
        """See `Ops.embed`."""
        return table.rows(batch.ids)

    def hc_read(self, residual: Tensor, w: weights.HyperConnection) -> tuple[Tensor, Tensor | None]:
        """See `Ops.hc_read`."""
        return hc.read(residual, w, self._c.S, self._c.eps)

    def hc_write(self, residual: Tensor, out: Tensor, inject: Tensor | None) -> Tensor:
        """See `Ops.hc_write`."""
        assert inject is not None, "only a final mixer lacks inject"
        return hc.write(residual, out, inject)

    def angles(self, positions: Tensor) -> Angles:
        """Rotary angles of int64 positions [T, 3]."""
        return Angles(*rope.cos_sin(positions, self._c.rope))

    def gdn_project(self, m: Tensor, w: weights.Gdn) -> GdnProjected:
        """See `Ops.gdn_project`."""
        return gdn.project(m, w, self._c.gdn)

    def gdn_mix(self, x: GdnProjected, batch: CpuBatch, number: int, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_mix`."""
        parts = []
        for segment, record in zip(batch.segments, batch.records, strict=True):
            memory = segment.memory.layers[number]
            assert isinstance(memory, GdnState)
            own = gdn.mix(x.part(segment.rows), memory.tail, w, self._c.gdn)
            steps = recurrent.recurrent if memory.s.dtype == torch.float64 else delta_rule.steps
            o, record.after[number] = steps(own.q, own.k, own.v, own.beta, own.g, memory.s)
            record.gdn[number] = own
            parts.append(o)
        return gdn.gated(joined(parts), x.z, w.norm, self._c.eps)

    def gdn_output(self, o: Tensor, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_output`."""
        return linear(o, w.out)

    def qsa_project(self, m: Tensor, batch: CpuBatch, w: weights.Qsa) -> QsaInputs:
        """See `Ops.qsa_project`."""
        return qsa.project(m, batch.angles, w, self._c.qsa, self._c.eps)

    def qsa_attend(self, x: QsaInputs, batch: CpuBatch, number: int, w: weights.Qsa, *, sparse: bool) -> Tensor:
        """See `Ops.qsa_attend`."""
        c = self._c.qsa

        def block_keys(raw: Tensor, first: Tensor) -> Tensor:
            return qsa.block_keys(raw, self.angles(first), w, c.ratio, self._c.eps)

        parts = []
        for segment in batch.segments:
            memory, own = segment.memory.layers[number], x.part(segment.rows)
            assert isinstance(memory, QsaState)
            rows = (own.k, own.v, own.ik)
            k, v, blocks = conversation.extend(memory, segment.memory.positions, rows, c.ratio, block_keys)
            parts.append(self.attend(own, k, v, blocks, sparse=sparse, codec=memory.k.codec))
        return attend.gated(joined(parts), x.gate)

    def attend(
        self, x: QsaInputs, k: Tensor, v: Tensor, block_keys: Tensor, *, sparse: bool, codec: Codec | None = None
    ) -> Tensor:
        """Attention of the last T of n tokens over what the indexer selects (all, unless sparse): [T, nh, hd].

        `k` and `v` are [n, nkv, hd], or what the codec stores of it, and include the T rows themselves.
        """
        c = self._c.qsa
        blocks = c.budget // c.ratio if sparse else len(block_keys)
        if codec is not None:
            return stored_attention.attend(x.q, x.iq, k, v, block_keys, blocks, c.ratio, codec)
        run = plain_attention.attend if k.dtype == torch.float64 else attention.attend
        return run(x.q, x.iq, k, v, block_keys, blocks, c.ratio)

    def qsa_output(self, o: Tensor, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_output`."""
        return linear(o, w.o)

    def route(self, m: Tensor, w: weights.Moe) -> Route:
        """See `Ops.route`."""
        return moe.route(m, w.router, self._c.moe.topk)

    def experts(self, m: Tensor, route: Route, w: weights.Moe) -> Tensor:
        """See `Ops.experts`."""
        routed = held.experts(m, route, w) if isinstance(w, held.HeldMoe) else moe.experts(m, route, w)
        return routed + moe.shared_expert(m, w)

    def ngram_numbers(self, batch: CpuBatch) -> NDArray[np.int64]:
        """See `Ops.ngram_numbers`."""
        return np.concatenate([self._numbers(segment) for segment in batch.segments])

    def ngram_ask(self, numbers: NDArray[np.int64], w: weights.Ple) -> tuple[int, Any]:
        """See `Ops.ngram_ask`: how many tokens, and what the table makes of it."""
        ngram_hash.check(numbers, w.table.shape[0])
        return len(numbers), cast("weights.AskedTable", w.table).ask(numbers.reshape(-1).tolist())

    def ngram_rows(self, asked: tuple[int, Any], w: weights.Ple) -> Tensor:
        """See `Ops.ngram_rows`."""
        tokens, rows = asked
        return cast("weights.AskedTable", w.table).answer(rows).reshape(tokens, -1)

    def ngram_gate(self, residual: Tensor, e: Tensor, w: weights.Ple) -> NgramGated:
        """See `Ops.ngram_gate`."""
        return ngram.gate(residual, e, w, self._c.S, self._c.eps)

    def ngram_smooth(self, residual: Tensor, x: NgramGated, batch: CpuBatch, w: weights.Ple) -> Tensor:
        """See `Ops.ngram_smooth`."""
        parts = []
        for segment, record in zip(batch.segments, batch.records, strict=True):
            own, state = x.part(segment.rows), segment.memory
            assert isinstance(state, State)
            parts.append(ngram.smooth(residual[segment.rows], own, state.ngram_tail, w, self._ple.n))
            record.ngram = own.normed
        return joined(parts)

    def _numbers(self, segment: Segment) -> NDArray[np.int64]:
        assert isinstance(segment.memory, State)
        return ngram_hash.row_numbers(segment.memory.history, segment.ids, self._ple)

    @property
    def _ple(self) -> Ple:
        assert self._c.ple is not None, "a layer with an n-gram table implies its config"
        return self._c.ple


def delta_rule_advance(x: gdn.GdnInputs, s: Tensor) -> Tensor:
    """The state that rows leave, without their outputs."""
    advance = recurrent.advance if s.dtype == torch.float64 else delta_rule.advance
    return advance(x.k, x.v, x.beta, x.g, s)
