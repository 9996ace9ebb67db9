"""The draft head on the GPU's kernels against the head of the CPU, and its memory kept and restored."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from strata.gguf import open_model
from strata.model import Network, load_config, load_weights, snapshot
from strata.model.mtp import MtpOptions
from strata.ops import bind
from strata.ops.qsa.pages import RING
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The CPU's network and one with the GPU's draft head, of the tiny model in eight bits."""
    from strata.ops.gpu.draft import DraftHead
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import Pool, head_config
    from strata.ops.gpu.upload import Upload

    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    weights = load_weights(directory, config)
    ops = GpuOps(config, Pool(config, DEVICE, slots=3, cells=512, kv=torch.float32), DEVICE)
    small = head_config(config)
    pool = Pool(small, DEVICE, slots=3, cells=512, kv=torch.float32)
    ops.drafts = DraftHead(GpuOps(small, pool, DEVICE), pool, config, DEVICE)
    cpu = Network(config, weights, bind("cpu", config), drafts=True)
    return cpu, Network(config, Upload(DEVICE).all(weights), ops, drafts=True)


class Done:
    """A pass of the trunk that computed these residuals."""

    def __init__(self, ids, residual):
        self.ids, self.residual, self.logits = tuple(ids), residual, None


def committed(state, ids, residual):
    """As if the trunk had read them."""
    state.length += len(ids)
    state.next_position = state.length
    if hasattr(state, "positions"):
        state.positions.write(torch.arange(state.length - len(ids), state.length)[:, None].repeat(1, 3))
        state.positions.commit(len(ids))
    from strata.model import mtp

    mtp.follow(state, Done(ids, residual.to(DEVICE) if not hasattr(state, "positions") else residual), len(ids))


def same_open_block(cells, expected):
    """Raw keys of the cells whose block is not complete."""
    first = cells.length // cells.pool.config.qsa.ratio * cells.pool.config.qsa.ratio
    found = cells.pool.left(cells)[0, : cells.length - first].cpu()
    assert torch.allclose(found, expected[first:], atol=0.05, rtol=0.05)


def close(a, b):
    a, b = (x.float().cpu().log_softmax(-1) for x in (a, b))
    return float((a.exp() * (a - b)).sum(-1).max()) < 2e-3


@pytest.mark.slow
def test_cells_and_chains(both):
    cpu, gpu = (replace(net, mtp=MtpOptions()) for net in both)
    generator = torch.Generator().manual_seed(4)
    c = cpu.config
    ours, theirs = gpu.new_state(), cpu.new_state()
    # Nine leave more cells than a window has room for; the interpreter takes long for each.
    for count in (1, 2, 9) if NATIVE else (2,):
        ids = torch.randint(1, 90, (count,), generator=generator).tolist()
        residual = torch.randn(count, c.S * c.H, generator=generator)
        for state in (theirs, ours):
            committed(state, ids, residual)
        assert ours.mtp.pending_ids == theirs.mtp.pending_ids
        depth = 2 if count == 2 else 1
        again = ours.clone()
        expected, got = cpu.draft(theirs, 7, depth), gpu.draft(ours, 7, depth)
        assert len(expected) == len(got) == depth
        assert all(close(a, b) for a, b in zip(expected, got, strict=True))
        assert ours.mtp.cells.length == theirs.mtp.positions.length == ours.length - 1
        assert ours.mtp.pending_ids == ()
        # The same cells and guesses, all at once.
        assert gpu.guess(again, 7, depth) == (tuple(int(logits.argmax()) for logits in got), depth)
        assert again.mtp.cells.length == ours.mtp.cells.length
        assert again.mtp.pending_ids == ()
        pool, last = gpu.ops.drafts.pool, ours.length - 1 + depth
        for tables in (pool.keys, pool.values):
            one, other = (tables[0][state.mtp.cells.pages].flatten(0, 1)[:last] for state in (ours, again))
            assert torch.equal(one, other)
        for cell in range(max(0, last - RING), last):
            one, other = (pool.raw[0, state.mtp.cells.slot, cell % RING] for state in (ours, again))
            assert torch.equal(one, other)
    known, cells = dict(theirs.tensors()), ours.mtp.cells
    assert torch.allclose(ours.mtp.residual.cpu(), known["mtp.residual"])
    for name, tables in (("k", cells.pool.keys), ("v", cells.pool.values)):
        found = tables[0][cells.pages].flatten(0, 1)[: cells.length].cpu()
        assert torch.allclose(found, known[f"mtp.{name}"], atol=0.05, rtol=0.05), name
    same_open_block(cells, known["mtp.ik"])


def test_what_it_remembers_is_kept_and_copied(both):
    _, gpu = both
    state, generator = gpu.new_state(), torch.Generator().manual_seed(1)
    ops, cells = gpu.ops, state.mtp.cells
    for pool, one, length in ((ops._pool, state, 70), (ops.drafts.pool, cells, 69)):
        pool.reserve(one, length)
        one.length = length
        pool.raw[:, one.slot] = torch.randn(pool.raw[:, one.slot].shape, generator=generator).to(DEVICE)
        for tables in (pool.keys, pool.values, pool.blocks):
            for table in tables:
                table[one.pages] = torch.randn(table[one.pages].shape, generator=generator).to(DEVICE)
    state.mtp.residual = torch.randn(state.mtp.residual.shape, generator=generator).to(DEVICE)
    ratio = gpu.config.qsa.ratio
    spans = [snapshot.cut(state, 0, 33, ratio), snapshot.cut(state, 33, 70, ratio)]
    assert spans[0].tables["mtp.k"].shape[0] == 32
    other = gpu.new_state()
    snapshot.fill(other, spans, snapshot.checkpoint(state), ratio)
    copied = state.clone()
    for one in (other, copied):
        assert one.mtp.cells.pages != cells.pages
        for (name, a), (same, b) in zip(state.tensors(), one.tensors(), strict=True):
            assert name == same
            assert torch.equal(a, b), name
    state.mtp.pending_ids = (3,)
    with pytest.raises(snapshot.SnapshotError, match=r"mtp\.pending_ids of a state of 70 tokens waits"):
        snapshot.checkpoint(state)


@pytest.mark.slow
def test_a_prompt_feeds_many_cells_at_once(both):
    cpu, gpu = both
    c, generator = cpu.config, torch.Generator().manual_seed(9)
    ours, theirs = gpu.new_state(), cpu.new_state()
    for count in (70, 1):
        ids = torch.randint(1, 90, (count,), generator=generator).tolist()
        residual = torch.randn(count, c.S * c.H, generator=generator)
        for state in (theirs, ours):
            committed(state, ids, residual)
        if count == 70:
            gpu.settle(ours)
            cpu.settle(theirs)
    known, cells = dict(theirs.tensors()), ours.mtp.cells
    assert cells.length == 69
    assert len(ours.mtp.pending_ids) == 1
    for name, tables in (("k", cells.pool.keys), ("v", cells.pool.values)):
        found = tables[0][cells.pages].flatten(0, 1)[: cells.length].cpu()
        assert torch.allclose(found, known[f"mtp.{name}"], atol=0.05, rtol=0.05), name
    same_open_block(cells, known["mtp.ik"])
    found = cells.pool.blocks[0][cells.pages].flatten(0, 1)[: cells.length // c.qsa.ratio].cpu()
    assert torch.allclose(found, known["mtp.blocks"], atol=0.05, rtol=0.05)
