"""The whole forward pass on the GPU's kernels, against the same pass on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import RequestError
from strata.gguf import open_model
from strata.loading.cache import cached_as
from strata.model import Network, load_config, load_weights
from strata.model.decision import Greedy
from strata.model.forward import segments
from strata.model.weights import Qsa
from strata.ops import bind
from strata.ops.gpu.rows import Rows
from strata.ops.matvec.triton import quantise
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(scope="module", params=["f32", "q8"] if NATIVE else ["f32"])  # the interpreter takes long for each
def both(tmp_path_factory, request):
    """The CPU's network and the GPU's, of the tiny model in eight bits, with keys and values of one type."""
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import Pool
    from strata.ops.gpu.upload import Upload

    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="yarn"))
    config = cached_as(replace(load_config(directory.metadata), mtp=False), request.param)
    weights = load_weights(directory, config)
    kv = torch.uint8 if request.param == "q8" else torch.float32
    pool = Pool(config, DEVICE, slots=4, cells=1024, kv=kv)
    return (
        Network(config, weights, bind("cpu", config)),
        Network(config, Upload(DEVICE).all(weights), GpuOps(config, pool, DEVICE)),
    )


@pytest.mark.slow
def test_windows(both):
    cpu, gpu = both
    ids = torch.randint(1, 90, (5,), generator=torch.Generator().manual_seed(5)).tolist()
    ours, theirs = gpu.new_state(), cpu.new_state()
    for net, state in ((cpu, theirs), (gpu, ours)):
        net.commit(state, net.window([(state, ids[:3])])[0], 3)
    a = cpu.window([(theirs, ids[3:])])[0]
    b = gpu.window([(ours, ids[3:])])[0]
    expected = torch.from_numpy(cpu.predictions([a]))
    got = torch.from_numpy(gpu.predictions([b]))
    assert torch.isfinite(got).all()
    # Activations of 8 bits: where the devices round differently, a code may be the next one. On this model's nearly
    # flat predictions that costs about 1e-4.
    kl = (expected.log_softmax(-1).exp() * (expected.log_softmax(-1) - got.log_softmax(-1))).sum(-1)
    assert kl.max() < 1e-3
    cpu.commit(theirs, a, 1)
    decision = gpu.decide([(ours, b)], [Greedy(np.array([ids[4]]), (), 1)])[0]
    got[0, ids[4]] = -torch.inf  # so that the second row is refused
    assert decision.ids == (int(got[0].argmax()),)
    assert decision.logprobs[0] == pytest.approx(float(got[0].double().log_softmax(-1).max()), abs=1e-6)
    assert ours.length == theirs.length == 4


def test_drafts_need_a_head(both):
    _, gpu = both
    with pytest.raises(RequestError, match="put together without its draft head"):
        gpu.ops.new_state(drafts=True)


def test_positions_of_pictures_are_refused(both):
    _, gpu = both
    state = gpu.new_state()
    with pytest.raises(RequestError, match="pictures cannot be read on this device"):
        gpu.read(state, [5, 6], torch.tensor([[0, 0, 0], [0, 0, 1]]))
    assert state.length == 0


def test_blocks_are_chosen_beside_the_projections(both, monkeypatch):
    """The indexer's branch begins before any other of its layer, and nothing waits for it but what attends."""
    _, gpu = both
    ops, order = gpu.ops, []
    begin = ops._branches.begin

    def noted(key, body, **options):
        order.append(key)
        assert options == ({"urgent": True} if key == "blocks" else {})
        join = begin(key, body, **options)
        return lambda: (order.append(("joined", key)), join())[1]

    monkeypatch.setattr(ops._branches, "begin", noted)
    number, layer = next((i, x) for i, x in enumerate(gpu.weights.layers) if isinstance(x.mixer, Qsa))
    state = gpu.new_state()
    batch = ops.begin(segments([(state, [5], torch.zeros(1, 3, dtype=torch.int64))]), window=True)
    x = torch.randn((1, gpu.config.H), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    m = ops.qsa_project(Rows(x, quantise(x)), batch, layer.mixer)
    ops.qsa_attend(m, batch, number, layer.mixer, sparse=True)
    assert order == ["blocks", 0, 1, ("joined", 0), ("joined", 1), ("joined", "blocks")]
