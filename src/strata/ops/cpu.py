"""The operations in plain torch on the CPU. Every call delegates to the formula's own file."""

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import ModelConfig, Ple
from strata.model.ops import Angles, GdnInputs, QsaInputs, Route
from strata.ops.gdn import chunked, recurrent
from strata.ops.gdn import project as gdn
from strata.ops.hyper_connection import reference as hc
from strata.ops.linear.stored import linear
from strata.ops.moe import reference as moe
from strata.ops.ngram import hash as ngram_hash
from strata.ops.ngram import mix as ngram
from strata.ops.norm.reference import rms_grouped
from strata.ops.qsa import attend, select
from strata.ops.qsa import project as qsa
from strata.ops.rope import reference as rope


class CpuOps:
    """`strata.model.ops.Ops` in torch."""

    def __init__(self, config: ModelConfig) -> None:
        self._c = config

    def linear(self, x: Tensor, w: weights.Matrix) -> Tensor:
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

    def gdn_project(self, m: Tensor, tail: Tensor, w: weights.Gdn) -> GdnInputs:
        """See `Ops.gdn_project`."""
        return gdn.project(m, tail, w, self._c.gdn)

    def gdn_step(self, x: GdnInputs, s: Tensor) -> tuple[Tensor, Tensor]:
        """See `Ops.gdn_step`."""
        return recurrent.recurrent(x.q, x.k, x.v, x.beta, x.g, s)

    def gdn_chunk(self, x: GdnInputs, s: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """See `Ops.gdn_chunk`."""
        return chunked.chunked(x.q, x.k, x.v, x.beta, x.g, s, start)

    def gdn_advance(self, x: GdnInputs, s: Tensor) -> Tensor:
        """See `Ops.gdn_advance`."""
        return recurrent.advance(x.k, x.v, x.beta, x.g, s)

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
        rows, start = x.q.shape[0], k.shape[0] - x.q.shape[0]
        blocks = c.budget // c.ratio if sparse else len(block_keys)
        outputs = []
        for row in range(rows):
            seen = start + row + 1
            one = slice(row, row + 1)
            allowed = select.select(x.iq[one], block_keys[: seen // c.ratio], seen - 1, blocks, c.ratio)
            outputs.append(attend.attend_row(x.q[one], k[:seen], v[:seen], allowed))
        return torch.cat(outputs)

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

    def ngram_rows(self, history: tuple[int, ...], ids: list[int], w: weights.Ple) -> Tensor:
        """See `Ops.ngram_rows`."""
        numbers = ngram_hash.row_numbers(history, ids, self._ple)
        return w.table.rows(numbers.reshape(-1).tolist()).reshape(len(ids), -1)

    def ngram_mix(self, residual: Tensor, e: Tensor, tail: Tensor, w: weights.Ple) -> tuple[Tensor, Tensor]:
        """See `Ops.ngram_mix`."""
        return ngram.mix(residual, e, tail, w, self._ple.n, self._c.S, self._c.eps)

    @property
    def _ple(self) -> Ple:
        assert self._c.ple is not None, "a layer with an n-gram table implies its config"
        return self._c.ple
