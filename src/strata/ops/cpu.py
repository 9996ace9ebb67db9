"""The operations on the CPU. Every call delegates to the formula's own file, or to the kernel beside it.

In float64, which only comparisons use, the plain formulas run.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig, Ple
from strata.model.ops import Angles, GdnInputs, GdnProjected, NgramGated, QsaInputs, Route
from strata.ops.gdn import kernel as delta_rule
from strata.ops.gdn import project as gdn
from strata.ops.gdn import recurrent
from strata.ops.hyper_connection import reference as hc
from strata.ops.linear.fixed import linear
from strata.ops.moe import reference as moe
from strata.ops.ngram import hash as ngram_hash
from strata.ops.ngram import mix as ngram
from strata.ops.norm.reference import rms_grouped
from strata.ops.qsa import attend
from strata.ops.qsa import kernel as attention
from strata.ops.qsa import project as qsa
from strata.ops.qsa import reference as plain_attention
from strata.ops.rope import reference as rope


class CpuOps:
    """`strata.model.ops.Ops` in torch and Numba."""

    def __init__(self, config: ModelConfig) -> None:
        self._c = config

    def linear(self, x: Tensor, w: Tensor) -> Tensor:
        """See `Ops.linear`."""
        return linear(x, w)

    def rms(self, x: Tensor, w: Tensor, groups: int = 1) -> Tensor:
        """See `Ops.rms`."""
        return rms_grouped(x, w, groups, self._c.eps)

    def hc_read(self, residual: Tensor, w: weights.HyperConnection) -> tuple[Tensor, Tensor | None]:
        """See `Ops.hc_read`."""
        return hc.read(residual, w, self._c.S, self._c.eps)

    def hc_write(self, residual: Tensor, out: Tensor, inject: Tensor) -> Tensor:
        """See `Ops.hc_write`."""
        return hc.write(residual, out, inject)

    def angles(self, positions: Tensor) -> Angles:
        """See `Ops.angles`."""
        return Angles(*rope.cos_sin(positions, self._c.rope))

    def gdn_project(self, m: Tensor, w: weights.Gdn) -> GdnProjected:
        """See `Ops.gdn_project`."""
        return gdn.project(m, w, self._c.gdn)

    def gdn_convolve(self, x: GdnProjected, tail: Tensor, w: weights.Gdn) -> GdnInputs:
        """See `Ops.gdn_convolve`."""
        return gdn.mix(x, tail, w, self._c.gdn)

    def gdn_step(self, x: GdnInputs, s: Tensor) -> tuple[Tensor, Tensor]:
        """See `Ops.gdn_step`."""
        steps = recurrent.recurrent if s.dtype == torch.float64 else delta_rule.steps
        return steps(x.q, x.k, x.v, x.beta, x.g, s)

    def gdn_chunk(self, x: GdnInputs, s: Tensor, start: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002  # row by row
        """See `Ops.gdn_chunk`; here the same bytes as `gdn_step`, wherever the rows are cut."""
        return self.gdn_step(x, s)

    def gdn_advance(self, x: GdnInputs, s: Tensor) -> Tensor:
        """See `Ops.gdn_advance`."""
        advance = recurrent.advance if s.dtype == torch.float64 else delta_rule.advance
        return advance(x.k, x.v, x.beta, x.g, s)

    def gdn_output(self, o: Tensor, z: Tensor, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_output`."""
        return gdn.output(o, z, w, self._c.eps)

    def qsa_project(self, m: Tensor, angles: Angles, w: weights.Qsa) -> QsaInputs:
        """See `Ops.qsa_project`."""
        return qsa.project(m, angles, w, self._c.qsa, self._c.eps)

    def qsa_block_keys(self, ik: Tensor, angles: Angles, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_block_keys`."""
        return qsa.block_keys(ik, angles, w, self._c.qsa.ratio, self._c.eps)

    def qsa_attend(self, x: QsaInputs, k: Tensor, v: Tensor, block_keys: Tensor, *, sparse: bool) -> Tensor:
        """See `Ops.qsa_attend`."""
        c = self._c.qsa
        blocks = c.budget // c.ratio if sparse else len(block_keys)
        run = plain_attention.attend if k.dtype == torch.float64 else attention.attend
        return run(x.q, x.iq, k, v, block_keys, blocks, c.ratio)

    def qsa_output(self, o: Tensor, gate: Tensor, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_output`."""
        return attend.output(o, gate, w.o)

    def route(self, m: Tensor, w: weights.Moe) -> Route:
        """See `Ops.route`."""
        return moe.route(m, w.router, self._c.moe.topk)

    def experts(self, m: Tensor, route: Route, w: weights.Moe) -> Tensor:
        """See `Ops.experts`."""
        return moe.experts(m, route, w)

    def shared_expert(self, m: Tensor, w: weights.Moe) -> Tensor:
        """See `Ops.shared_expert`."""
        return moe.shared_expert(m, w)

    def ngram_numbers(self, history: tuple[int, ...], ids: Sequence[int]) -> NDArray[np.int64]:
        """See `Ops.ngram_numbers`."""
        return ngram_hash.row_numbers(history, ids, self._ple)

    def ngram_rows(self, numbers: NDArray[np.int64], w: weights.Ple) -> Tensor:
        """See `Ops.ngram_rows`."""
        ngram_hash.check(numbers, w.table.shape[0])
        return w.table.rows(numbers.reshape(-1).tolist()).reshape(len(numbers), -1)

    def ngram_gate(self, residual: Tensor, e: Tensor, w: weights.Ple) -> NgramGated:
        """See `Ops.ngram_gate`."""
        return ngram.gate(residual, e, w, self._c.S, self._c.eps)

    def ngram_smooth(self, residual: Tensor, x: NgramGated, tail: Tensor, w: weights.Ple) -> Tensor:
        """See `Ops.ngram_smooth`."""
        return ngram.smooth(residual, x, tail, w, self._ple.n)

    @property
    def _ple(self) -> Ple:
        assert self._c.ple is not None, "a layer with an n-gram table implies its config"
        return self._c.ple
