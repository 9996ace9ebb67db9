"""A model whose experts find no place on the card: what it says, and that they are put where they are looked for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.config import resolve
from strata.errors import ConfigError, RequestError
from strata.gguf import open_model
from strata.loading import gpu, tiers
from strata.loading.device import Placement
from strata.loading.gpu import Card
from strata.model import load_config, load_weights
from strata.ops.tiers.ram import pages
from support.stored import write_stored

CARD = Card(0, "Abacus 9", 90, 24 * 10**9, 25 * 10**9)


def test_a_cap_is_a_number_of_bytes():
    assert resolve({"vram": "24GB"}, environment={}).settings.vram == 24 * 10**9
    assert resolve({}, environment={"STRATA_VRAM": "22.5GiB"}).settings.vram == int(22.5 * 2**30)
    with pytest.raises(ConfigError, match="--vram must be a number of bytes such as 4GB"):
        resolve({"vram": "24 gigabytes"}, environment={})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    return replace(config, mtp=False), replace(load_weights(directory, config), mtp=None)


def test_experts_take_what_is_left(model):
    config, weights = model
    experts = tiers.expert_bytes(weights)
    placed, slots = tiers.place(CARD, 10**6, config, 2, experts, drafts=False)
    assert (slots, placed.share) == (experts, 1.0)
    least = placed.work + placed.cache + 10**6
    placed, slots = tiers.place(replace(CARD, free=least + experts // 3), 10**6, config, 2, experts, drafts=False)
    assert slots == experts // 3
    assert "among them 33% of the experts; all are in RAM" in str(placed)
    assert "of the experts" not in str(Placement("cuda:0", "Abacus 9", 1, 64, 1, 1))
    with pytest.raises(RequestError, match=r"Abacus 9 may be taken, but .* are needed without a single routed expert"):
        tiers.place(replace(CARD, free=least - 1), 10**6, config, 2, experts, drafts=False)


def test_a_cap_leaves_whole_models_alone_and_cuts_experts_only_where_it_must(model):
    config, weights = model
    config = replace(config, qsa=replace(config.qsa, kv="bf16"))
    kept = 10**7
    assert gpu._placed(CARD, weights, kept, config, 2, None)[1] is None
    assert gpu._placed(CARD, weights, kept, config, 2, 20 * 10**9)[1] is None
    with pytest.raises(RequestError, match=r"1\.00 GB of Abacus 9 may be taken"):
        gpu._placed(CARD, weights, 10**10, config, 2, 10**9)


def test_experts_lie_in_slots_and_in_ram(model):
    config, weights = model
    device = torch.device("cpu")
    each = tiers.expert_bytes(weights) // (4 * 8)
    tier = tiers.build(weights, config, 10 * each, device, 1)
    try:
        there = tier.cache.slot_of
        assert (there >= 0).sum() == 10
        assert (np.ptp((there >= 0).sum(axis=1))) <= 1  # as many of each layer, as long as nothing is known
        assert np.array_equal(tier.table.numpy(), there)
        for layer, expert in np.argwhere(there >= 0).tolist()[:3]:
            moe, part = weights.layers[layer].moe, tier.layers[layer]
            slot = part.slots.data[there[layer, expert]]
            expected = torch.zeros_like(slot)
            raws = (torch.from_numpy(m.raw[expert].copy()) for m in (moe.gate, moe.up, moe.down))
            part.source.layout.fill(expected, *raws)
            assert torch.equal(slot, expected)
    finally:
        tier.close()
    assert len(tiers.processors(3)) == 3


def test_pages_are_locked_once():
    """Matrices that lie side by side in a file share pages."""
    assert pages([(5000, 9000), (9000, 12000), (40960, 45056), (100, 200)]) == [(0, 12288), (40960, 45056)]
    assert pages([(0, 1)]) == [(0, 4096)]
