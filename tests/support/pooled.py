"""The CPU's operations on conversations that live in a GPU's pool: what sessions see of a GPU, without its kernels.

Every pass begins by putting a state of the CPU together from what the pool holds, and every commit puts it back, cell
by cell. So whatever the pool mixes up or loses is another answer. Rows are the CPU's, hence the cache is float32 or q8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strata.model import Network, State, snapshot
from strata.model.config import ModelConfig
from strata.model.ops import Pass, Segment
from strata.ops.cpu import CpuOps
from strata.ops.gpu.pool import KINDS, GpuState, Pool
from strata.ops.qsa.pages import RING


@dataclass
class PooledPass:
    ids: tuple[int, ...]
    residual: Tensor
    inner: Pass
    state: State
    logits: None = None
    layers: tuple[int, ...] = ()


class PooledOps(CpuOps):
    """States are those of a pool."""

    form = "pooled"

    def __init__(self, config: ModelConfig, pool: Pool) -> None:
        super().__init__(config)
        self.pool = pool

    def new_state(self, *, drafts: bool) -> GpuState:
        assert not drafts
        return self.pool.new_state()

    def fits(self, needs: Sequence[tuple[GpuState | None, int]]) -> bool:
        return self.pool.fits(needs)

    def begin(self, segments: Sequence[Segment], *, window: bool):
        laid = []
        for segment in segments:
            self.pool.reserve(segment.memory, segment.memory.length + len(segment.ids))
            laid.append(replace(segment, memory=self.mirrored(segment.memory)))
        return super().begin(laid, window=window)

    def passes(self, batch, residual: Tensor) -> list[PooledPass]:
        return [
            PooledPass(one.ids, one.residual, one, segment.memory)
            for one, segment in zip(super().passes(batch, residual), batch.segments, strict=True)
        ]

    def commit(self, state: GpuState, done: PooledPass, n: int) -> None:
        super().commit(done.state, done.inner, n)
        before, ratio = state.length, self._c.qsa.ratio
        state.length, state.next_position = done.state.length, done.state.next_position
        parts = dict(done.state.tensors())
        for number, tables in self._tables():
            for name, table in tables.items():
                step = ratio if name == "blocks" else 1
                for row in range(before // step, state.length // step):
                    page, at = divmod(row, table.shape[1])
                    table[state.pages[page], at] = parts[f"layer.{number}.{name}"][row]
        for i, number in enumerate(self._attention):
            for cell in range(max(before, state.length - RING), state.length):
                self.pool.raw[i, state.slot, cell % RING] = parts[f"layer.{number}.ik"][cell]
        recurrent = [name for name in parts if name.endswith(".s")]
        for i, name in enumerate(recurrent):
            self.pool.states[state.place, i] = parts[name]
            self.pool.tails[state.slot, i] = parts[name.replace(".s", ".tail")]
        self.pool.ngram_tails[state.slot] = parts["ngram_tail"]
        self.pool.history[state.slot] = torch.tensor(done.state.history, dtype=torch.int32)

    def mirrored(self, state: GpuState) -> State:
        """The same on the CPU."""
        mirror, ratio = State.empty(self._c), self._c.qsa.ratio
        if state.length:
            span = snapshot.cut(state, 0, state.length, ratio)
            tables = {**span.tables, "positions": torch.arange(state.length)[:, None].repeat(1, 3)}
            singles = dict(snapshot.checkpoint(state).tensors)
            for number in self._attention:  # raw keys of complete blocks are not there, and nobody needs them
                raw = torch.full((state.length, self._c.qsa.id), torch.nan)
                first = state.length // ratio * ratio
                raw[first:] = singles.pop(f"layer.{number}.ik")[: state.length - first]
                tables[f"layer.{number}.ik"] = raw
            end = snapshot.Checkpoint(state.length, singles)
            snapshot.fill(mirror, [replace(span, tables=tables)], end, ratio)
        return mirror

    @property
    def _attention(self) -> list[int]:
        """Numbers of the attention layers."""
        return [i for i, mixer in enumerate(self._c.mixers) if mixer.name == "QSA"]

    def _tables(self):
        for number, *tables in zip(self._attention, self.pool.keys, self.pool.values, self.pool.blocks, strict=True):
            yield number, dict(zip(("k", "v", "blocks"), tables, strict=True))


def pooled(net: Network, *, slots: int, cells: int) -> Network:
    """The network with its conversations in a pool; without drafts. Cells that nobody wrote are NaN, or bytes of one.

    Keys and values are float32, or eight bits if that is what the network's dimensions say.
    """
    kv = KINDS["q8"] if net.config.qsa.kv == "q8" else torch.float32
    pool = Pool(net.config, torch.device("cpu"), slots=slots, cells=cells, kv=kv)
    for tables in (pool.keys, pool.values, pool.raw, pool.blocks):
        for table in tables:
            table.fill_(torch.nan if table.is_floating_point() else 255)
    return replace(net, ops=PooledOps(net.config, pool), drafts=False)
