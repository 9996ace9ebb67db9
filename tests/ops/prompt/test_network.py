"""Prompt passes of a whole model: against float32, in pieces, and with windows behind them."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("transformers")  # the tiny model is its oracle

from strata.errors import RequestError
from strata.gguf import open_model
from strata.model import Network, forward, load_config, load_weights
from strata.ops import bind
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A float32 network and the GPU's, of two layers of the tiny model in eight bits: n-gram and GDN, QSA."""
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import Pool
    from strata.ops.gpu.upload import Upload

    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="yarn"))
    config = replace(load_config(directory.metadata), mtp=False)
    exact, stored = (load_weights(directory, config, exact=exact) for exact in (True, False))
    config = replace(config, mixers=(config.mixers[1], config.mixers[3]))
    exact, stored = (replace(w, layers=(w.layers[1], w.layers[3])) for w in (exact, stored))
    pool = Pool(config, DEVICE, slots=4, cells=1024, kv=torch.float32)
    return (
        Network(config, exact, bind("cpu", config)),
        Network(config, Upload(DEVICE).all(stored), GpuOps(config, pool, DEVICE)),
    )


def _ids(count: int) -> list[int]:
    return torch.randint(1, 90, (count,), generator=torch.Generator().manual_seed(5)).tolist()


@pytest.mark.slow
def test_a_prompt_against_float32(both):
    exact, gpu = both
    ids = _ids(6)
    theirs, ours = exact.new_state(), gpu.new_state()
    expected, got = exact.read(theirs, ids), gpu.read(ours, ids).cpu()
    error = (got - expected).norm(dim=1) / expected.norm(dim=1)
    # Operands of 11 bits in some thirty products; where a row chooses another expert or block, nothing bounds it.
    assert error.median() < 2e-3
    assert (error < 5e-3).float().mean() > 0.6
    assert (ours.length, ours.next_position) == (6, 6)
    want, have = exact.logits(expected).log_softmax(-1), gpu.logits(got[-2:].to(DEVICE)).cpu().log_softmax(-1)
    want = want[-2:]
    assert (want.exp() * (want - have)).sum(-1).max() < 1e-3  # the head takes activations of eight bits


@pytest.mark.slow
def test_cuts_cannot_be_seen(both):
    """Around an absolute multiple of a chunk, behind cells that are all zero: residuals and everything kept."""
    _, gpu = both
    ids, pool = _ids(4), gpu.ops._pool
    ours, whole = gpu.new_state(), gpu.new_state()
    for state in (ours, whole):
        pool.reserve(state, 62)
        state.length = state.next_position = 62
        pool.raw[:, state.slot] = 0
        for tables in (pool.keys, pool.values, pool.blocks):
            for cells in tables:
                cells[state.pages] = 0
    got = torch.cat((gpu.read(ours, ids[:2]), gpu.read(ours, ids[2:])))
    assert torch.equal(got, gpu.read(whole, ids))
    for (name, a), (_, b) in zip(ours.tensors(), whole.tensors(), strict=True):
        assert torch.equal(a, b), name


def test_a_pass_is_committed_whole(both):
    _, gpu = both
    state = gpu.new_state()
    laid = forward.segments([(state, (1, 2), torch.tensor([[0] * 3, [1] * 3]))])
    batch = gpu.ops.begin(laid, window=False)
    residual = torch.zeros(2, 1)
    from strata.ops.prompt.batch import PromptPass

    with pytest.raises(RequestError, match="committed whole, not 1 of them"):
        gpu.ops.commit(state, PromptPass((1, 2), residual, batch), 1)
    gpu.ops._pool.give_back(batch.spare_place)


def test_a_pass_is_of_one_conversation(both):
    _, gpu = both
    states = [gpu.new_state() for _ in range(2)]
    laid = forward.segments([(state, (1,), torch.zeros(1, 3, dtype=torch.int64)) for state in states])
    with pytest.raises(RequestError, match="rows of one conversation, not 2 of 2"):
        gpu.ops.begin(laid, window=False)
