"""Prompts whose experts lie in tiers: brought through a ring, with the bytes of the network that has them all."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from strata.gguf import open_model
from strata.memory.slots import SlotCache
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.planes import pack
from strata.ops.tiers import ram
from strata.ops.tiers.prompts import Shelf, ring_bytes, streaming
from strata.ops.tiers.tier import Tier, TierOptions
from support.launch import NATIVE
from support.stocked import disk
from support.stored import write_stored
from support.tiered import tiered

DEVICE = torch.device("cuda" if NATIVE else "cpu")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_what_comes_is_the_experts_planes():
    """Into buffers that are wider than the slots, too."""
    made = tiered([(0, 1), (1, 4)])
    try:
        shelf = Shelf(made.tier, 3, DEVICE)
        shelf.begin()
        assert list(shelf.missing(0)) == [0, 2, 3, 4, 5]
        assert list(shelf.missing(1)) == [0, 1, 2, 3, 5]
        kind = shelf.layout(1)
        memory = torch.full((4, kind.nbytes + 512), 255, dtype=torch.uint8, device=DEVICE)
        shelf.bring(1, memory[:, : kind.nbytes], [5, 0, 2], [3, 0, 1])
        for expert, buffer in ((5, 3), (0, 0), (2, 1)):
            moe = made.moes[1]
            for part, matrix in zip(kind.parts, (moe.gate, moe.up, moe.down), strict=True):
                raw = torch.from_numpy(matrix.raw[expert]).to(DEVICE)
                planes = pack(matrix.type.name, raw, matrix.shape[-1])
                assert torch.equal(memory[buffer, part][: len(planes)], planes)
        assert (memory[2] == 255).all()
        assert (memory[:, kind.nbytes :] == 255).all()
    finally:
        made.close()


def test_a_rings_memory():
    assert ring_bytes(1000, 900, 30) == 30_000 + 9000


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers, a recurrent one with n-grams and one with attention, of eight experts each."""
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config, weights = load_config(directory.metadata), load_weights(directory, load_config(directory.metadata))
    chosen = (1, 3)
    config = replace(config, mtp=False, mixers=tuple(config.mixers[i] for i in chosen))
    return config, replace(weights, layers=tuple(weights.layers[i] for i in chosen), mtp=None)


def _read(model, slots, ids, ram_of=None):
    config, weights = model
    tier = coming = None
    if slots is not None:
        moes = [layer.moe for layer in weights.layers]
        kinds = ram.layouts(moes)
        cache = SlotCache([kinds[0].nbytes], [0, 0], [slots], experts=config.moe.E)
        held = ram_of(moes) if ram_of else ram.pinned(moes) if NATIVE else ram.mapped(moes)
        tier = Tier(kinds, ram.described(moes), held, cache, [0, 0], [slots], config.moe.topk, DEVICE, TierOptions())
        tier.fill()
    pool = Pool(config, DEVICE, slots=2, cells=384, kv=torch.float32)
    uploaded = Upload(DEVICE, tier=tier).all(weights)
    ops = GpuOps(config, pool, DEVICE, tier=tier)
    if tier is not None:
        coming = streaming(tier, [layer.moe for layer in uploaded.layers], config.moe.topk, DEVICE, buffers=5)
        ops.lacks(coming)
    try:
        net = Network(config, uploaded, ops)
        state = net.new_state()
        residual = net.read(state, ids)
        return residual, [t.clone() for _, t in state.tensors()], coming
    finally:
        if tier is not None:
            tier.close()


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.2])
def test_prompts_do_not_depend_on_the_tier(model, tmp_path, share):
    """All missing experts in RAM, or most of them on a disk."""
    ids = [5, 9]
    expected, kept, _ = _read(model, None, ids)
    with disk(tmp_path / "experts.bin", share or 0.0, landing=2) as stored:
        found, state, coming = _read(model, 5, ids, stored if share else None)
        assert coming.brought > 0
        assert torch.equal(found, expected)
        assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
        assert share is None or stored.stock.stats.misses > 0
