"""A whole network whose experts lie in tiers: the predictions of the one that has them all, byte for byte."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import TierError
from strata.experts.misses import Costs
from strata.experts.misses.answer import EXPERTS
from strata.gguf import open_model
from strata.memory.slots import SlotCache
from strata.model import Network, load_config, load_weights
from strata.model.decision import Greedy
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.tiers import ram
from strata.ops.tiers.tier import Tier, TierOptions
from support.launch import NATIVE
from support.stocked import disk
from support.stored import write_stored

DEVICE = torch.device("cuda" if NATIVE else "cpu")
# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers, a recurrent one with n-grams and one with attention, of eight experts each."""
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config, weights = load_config(directory.metadata), load_weights(directory, load_config(directory.metadata))
    chosen = (1, 3)
    config = replace(config, mtp=False, mixers=tuple(config.mixers[i] for i in chosen))
    return config, replace(weights, layers=tuple(weights.layers[i] for i in chosen), mtp=None)


def _network(model, slots, costs=Costs(1.0, 1.0), ram_of=None):  # noqa: B008  # frozen
    config, weights = model
    tier = None
    if slots is not None:
        moes = [layer.moe for layer in weights.layers]
        kinds = ram.layouts(moes)
        cache = SlotCache([kinds[0].nbytes], [0, 0], [slots], experts=config.moe.E)
        held = ram_of(moes) if ram_of else ram.pinned(moes) if NATIVE else ram.mapped(moes)
        options = TierOptions(costs=costs, room=3, every=1, moves=4)
        tier = Tier(kinds, ram.described(moes), held, cache, [0, 0], [slots], config.moe.topk, DEVICE, options)
        tier.fill()
    pool = Pool(config, DEVICE, slots=3, cells=384, kv=torch.float32)
    uploaded = Upload(DEVICE, tier=tier).all(weights)
    return Network(config, uploaded, GpuOps(config, pool, DEVICE, tier=tier)), tier


def _text(network):
    """Windows of one and of two conversations, chosen by the host and by the device."""
    one, two = network.new_state(), network.new_state()
    found = []
    done = network.window([(one, [5, 9])])
    found.append(network.predictions(done).tobytes())
    network.commit(one, done[0], 1)
    done = network.window([(one, [11]), (two, [90])])
    decisions = network.decide([(one, done[0]), (two, done[1])], [Greedy(np.empty(0, np.int64), (), 1)] * 2)
    found.append([(each.ids, each.logprobs) for each in decisions])
    return found


@pytest.fixture(scope="module")
def expected(model):
    """Of the network that has all experts."""
    return _text(_network(model, None)[0])


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_tier(model, expected):
    for slots, costs in ((0, Costs(1.0, 1.0)), (5, Costs(1.0, 3.0)), (16, Costs(1.0, 1.0))):
        network, tier = _network(model, slots, costs)
        try:
            before = tier.cache.slot_of.copy()
            assert _text(network) == expected, slots
            total, after = tier.total, tier.cache.slot_of
            assert total.layers == 4
            assert total.experts == total.resident + total.link + total.host
            if slots == 0:
                assert total.resident == 0 < min(total.link, total.host)
            elif slots == 5:
                assert 0 < total.resident < total.experts
                assert (before != after).any()  # it has learned, and moved
            else:
                assert (total.resident, total.whole) == (total.experts, total.layers)
                assert tier.host.stats().messages == 0
        finally:
            tier.close()


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_disk(model, expected, tmp_path):
    """Some experts have slots, some lie in RAM, most are read; what moves to slots comes through RAM."""
    with disk(tmp_path / "experts.bin", 0.5, landing=4) as stored:
        network, tier = _network(model, 3, Costs(1.0, 1.0), stored)
        try:
            before = tier.cache.slot_of.copy()
            assert _text(network) == expected
            total = tier.total
            assert total.experts == total.resident + total.link + total.host
            assert 0 < total.ssd <= total.host
            assert total.read_us > 0
            assert stored.stock.missed == total.ssd
            assert (before != tier.cache.slot_of).any()  # it has learned, and moved
        finally:
            tier.close()


@pytest.mark.slow
def test_a_window_that_is_given_up_fails_with_the_report_and_the_next_one_is_right(model):
    """A message of the second layer is spoilt on its way; the same window, asked for again, has its predictions."""
    network, tier = _network(model, 0, Costs(1.0, 1e6))
    try:
        state = network.new_state()
        desk, before = tier.host._desk, tier.host._desk[EXPERTS]
        desk[EXPERTS] = 0  # the host knows of no experts: every message is nonsense
        done = network.window([(state, [5])])
        with pytest.raises(TierError, match="makes no sense, so nothing was computed from it: layer 0, experts"):
            network.predictions(done)
        desk[EXPERTS] = before
        done = network.window([(state, [5])])
        assert np.isfinite(network.predictions(done)).all()
        assert network.decide([(state, done[0])], [Greedy(np.empty(0, np.int64), (), 1)])[0].ids
    finally:
        tier.close()
