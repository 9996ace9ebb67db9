"""Raw indexer keys in a ring: blocks have the bytes that they have without company, whatever was computed in between.

Only the indexer's kernel runs, on one layer of a pool. What is not a committed cell's is no number before.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from strata.errors import RequestError
from strata.model import snapshot
from strata.model.config import Mixer
from strata.model.ops import Segment
from strata.ops.gpu.batch import GpuPass
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import PAGE, Pool
from strata.ops.prompt.batch import PromptPass
from strata.ops.rope.reference import cos_sin
from support.launch import NATIVE, Kernels
from support.network import network

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")
CPU = torch.device("cpu")
CELLS = 140


class Index:
    """Conversations of one text, and the kernel."""

    def __init__(self) -> None:
        c = network("other").config
        self.config = replace(c, mixers=(Mixer.QSA,), ple=None, mtp=False, qsa=replace(c.qsa, budget=8 * c.qsa.ratio))
        self.kernels, q = Kernels("strata.ops.qsa.gpu"), self.config.qsa
        generator = torch.Generator().manual_seed(3)
        self.keys = torch.randn(CELLS + 16, q.id, generator=generator)  # of the text
        self.other = torch.randn(CELLS + 16, q.id, generator=generator)  # of tokens that are not taken
        self.norm = torch.rand(q.id, generator=generator) + 0.5
        self.turns = cos_sin(torch.arange(CELLS + 16)[:, None].expand(-1, 3), c.rope)

    def pool(self, device: torch.device = CPU) -> Pool:
        pool = Pool(self.config, device, slots=3, cells=9 * PAGE, kv=torch.float32)
        pool.raw.fill_(torch.nan)
        pool.blocks[0].fill_(torch.nan)
        for tables in (pool.keys, pool.values):
            tables[0].zero_()
        return pool

    def run(self, state, first: int, keys: torch.Tensor, *, window: bool = True) -> torch.Tensor:
        """Rows with some keys at the cells from ``first`` on; what they leave open."""
        pool, q, count = state.pool, self.config.qsa, len(keys)
        pool.reserve(state, first + count)
        cells = torch.arange(first, first + count, dtype=torch.int32)
        slots, zeros = torch.full((count,), state.slot, dtype=torch.int32), torch.zeros(count, dtype=torch.int32)
        left = torch.full((q.ratio - 1, q.id), torch.nan)
        asked = torch.cat((torch.zeros(count, q.ih * q.id), keys), 1)
        iq, ik = (
            (asked, asked[:, q.ih * q.id :]) if window else (asked[:, : q.ih * q.id].contiguous(), keys.contiguous())
        )
        self.kernels.index[(count, q.ih + 1)](
            iq, ik, *self.turns, cells, cells // q.ratio * q.ratio,
            self.norm, self.norm, 1e-6, slots, cells + 1, zeros, pool.table, pool.most_pages,
            torch.empty(count, q.ih, q.id), pool.raw[0], pool.blocks[0], left, torch.tensor([count], dtype=torch.int32),
            zeros, IH=q.ih, ID=q.id, HALF=self.turns[0].shape[-1], RATIO=q.ratio, FIRST=0,
            JOINED=window, WINDOW=window, COUNTED=False, PDL=False,
        )  # fmt: skip
        return left

    def window(self, state, count: int, taken: int) -> None:
        """Some rows, of which the first ones are the text's and the others are rejected."""
        at = state.length
        self.run(state, at, torch.cat((self.keys[at : at + taken], self.other[at + taken : at + count])))
        state.length = state.next_position = at + taken

    def prompt(self, state, count: int, *, taken: bool = True) -> None:
        at = state.length
        left = self.run(state, at, (self.keys if taken else self.other)[at : at + count], window=False)
        if taken:
            state.pool.keep(state, left[None], at + count)
            state.length = state.next_position = at + count

    def blocks(self, state) -> torch.Tensor:
        """Those that are complete."""
        return state.pool.blocks[0][state.pages].flatten(0, 1)[: state.length // self.config.qsa.ratio].cpu()

    def same(self, state) -> None:
        """Complete blocks, and the keys of the one that is not, are those of the text."""
        ratio = self.config.qsa.ratio
        assert torch.equal(self.blocks(state), self.expected[: state.length // ratio])
        first = state.length // ratio * ratio
        left = state.pool.left(state)[0].cpu()
        assert torch.equal(left[: state.length - first], self.keys[first : state.length])
        assert not left[state.length - first :].any()


@pytest.fixture(scope="module")
def index() -> Index:
    """With blocks of which each was computed in a window of its own: it reads nothing from a ring."""
    found = Index()
    state, ratio = found.pool().new_state(), found.config.qsa.ratio
    for at in range(0, CELLS, ratio):
        found.run(state, at, found.keys[at : at + ratio])
    state.length = CELLS // ratio * ratio
    found.expected = found.blocks(state).clone()
    assert found.expected.isfinite().all()
    return found


def test_token_by_token(index) -> None:
    state = index.pool().new_state()
    for _ in range(CELLS):
        index.window(state, 1, 1)
        index.same(state)


@pytest.mark.parametrize("behind", [70, 71, 72, 73])
def test_a_conversation_comes_back_at_any_place_in_a_block(index, behind) -> None:
    """To another slot, from a checkpoint and its rows, or as a copy; the first one goes on, too."""
    ratio, state = index.config.qsa.ratio, index.pool().new_state()
    assert ratio == 4
    index.prompt(state, behind - 20)
    for _ in range(4):
        index.window(state, 7, 5)
    spans = [snapshot.cut(state, 0, 33, ratio), snapshot.cut(state, 33, behind, ratio)]
    end, copy = snapshot.checkpoint(state), state.clone()
    assert not any(name.endswith(".ik") for name in spans[0].tables)
    assert end.tensors["layer.0.ik"].shape == (ratio - 1, index.config.qsa.id)
    other, far = state.pool.new_state(), index.pool().new_state()
    far.pool.reserve(far.pool.new_state(), 1)
    for one in (other, far):
        snapshot.fill(one, spans, end, ratio)
        for (name, a), (_, b) in zip(state.tensors(), one.tensors(), strict=True):
            assert torch.equal(a, b), name
    for count, taken in ((1, 1), (8, 0), (3, 2), (1, 1), (8, 8)):
        for one in (state, copy, other, far):
            index.window(one, count, taken)
            index.same(one)


@pytest.mark.parametrize("behind", [20, 21, 22, 23])
def test_windows_that_are_rejected_or_computed_again(index, behind) -> None:
    """As many rows as there may be, a window launched ahead of them, and both in vain."""
    state = index.pool().new_state()
    index.prompt(state, behind)
    for count, ahead, taken in ((8, 8, 0), (8, 8, 5), (1, 1, 1), (8, 7, 8), (2, 8, 1)):
        at = state.length
        index.run(state, at, index.other[at : at + count])
        index.run(state, at + count, index.other[at + count : at + count + ahead])
        index.same(state)
        index.window(state, count, taken)
        at = state.length
        index.run(state, at, index.other[at : at + ahead])
        index.same(state)


@pytest.mark.parametrize("rows", [1, 9, 30, 32, 35])
@pytest.mark.parametrize("before", [0, 5, 7])
def test_prompts_of_any_length(index, before, rows) -> None:
    """One that is abandoned leaves no trace; one that is committed, what the ring has room for."""
    state = index.pool().new_state()
    for _ in range(before):
        index.window(state, 1, 1)
    index.prompt(state, rows, taken=False)
    assert before == 0 or torch.equal(state.pool.left(state)[0, : before % 4], index.keys[before // 4 * 4 : before])
    index.prompt(state, rows)
    index.same(state)
    index.window(state, 8, 5)
    index.same(state)


@pytest.mark.parametrize("tensor_cores", [True, False])
@pytest.mark.parametrize(("before", "rows"), [(7, 9), pytest.param(5, 32, marks=pytest.mark.slow)])
def test_passes_by_either_kind_of_kernels(index, before, rows, tensor_cores) -> None:
    """A card without tensor cores reads prompts by the kernels of windows, with more rows than the ring has."""
    pool, c, q = index.pool(DEVICE), index.config, index.config.qsa
    ops, head, norm = GpuOps(c, pool, DEVICE, graphs=False), torch.ones(q.hd, device=DEVICE), index.norm.to(DEVICE)
    w = SimpleNamespace(q_norm=head, k_norm=head, iq_norm=norm, ik_norm=norm)
    if not tensor_cores:
        ops._prompt = None
    state = pool.new_state()

    def passed(keys: torch.Tensor) -> GpuPass | PromptPass:
        ids, at, count, keys = (1,) * len(keys), state.length, len(keys), keys.to(DEVICE).contiguous()
        positions, nothing = torch.arange(at, at + count)[:, None].expand(-1, 3), torch.empty(count, 0)
        batch = ops.begin([Segment(state, ids, positions, slice(0, count))], window=False)
        rest = [torch.ones(count, n, device=DEVICE) for n in (2 * q.nh * q.hd, q.nkv * q.hd, q.nkv * q.hd, q.ih * q.id)]
        if tensor_cores:
            out = torch.empty(count, q.nh * q.hd, dtype=torch.float16, device=DEVICE)
            ops._prompt._attend((*rest, keys), batch, 0, w, out)
            return PromptPass(ids, nothing, batch)
        ops._chosen([rest[-1], keys], batch, 0, w)
        return GpuPass(ids, nothing, batch, 0, None)

    for count in (before, rows, 1, rows):
        in_vain = passed(index.other[state.length : state.length + count])
        if count > 8:
            with pytest.raises(RequestError, match="committed whole"):
                ops.commit(state, in_vain, count - 1)
        pool.give_back(in_vain.batch.spare_place if tensor_cores else in_vain.batch.spare_places[0])
        index.same(state)
        ops.commit(state, passed(index.keys[state.length : state.length + count]), count)
        index.same(state)
