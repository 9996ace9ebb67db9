"""A model whose experts find no place on the card: what it says, and that they are put where they are looked for."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.config import resolve
from strata.errors import ConfigError, RequestError
from strata.gguf import open_model
from strata.loading import tiers
from strata.loading.device import Placement
from strata.loading.storage import Storage
from strata.memory.budget.plan import Arena
from strata.model import load_config, load_weights
from strata.ops.tiers.ram import pages
from support.planned import planned
from support.stored import write_stored


def test_a_cap_is_a_number_of_bytes():
    assert resolve({"vram": "24GB"}, environment={}).settings.vram == 24 * 10**9
    assert resolve({}, environment={"STRATA_VRAM": "22.5GiB"}).settings.vram == int(22.5 * 2**30)
    with pytest.raises(ConfigError, match="--vram must be a number of bytes such as 4GB"):
        resolve({"vram": "24 gigabytes"}, environment={})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    return directory, replace(config, mtp=False), replace(load_weights(directory, config), mtp=None)


def test_what_is_said_of_a_share(model):
    made = planned(*model[:2], 10)
    text = str(Placement.on_gpu(made, 0, "Abacus 9"))
    assert f"among them {10 / 32:.0%} of the experts; all are in RAM" in text
    assert "of the experts" not in str(Placement("cuda:0", "Abacus 9", 1, 64, 1, 1))


def test_ram_that_cannot_hold_what_a_window_needs_is_refused_with_what_would_do(model):
    made = planned(*model[:2], 10)
    tiers.check(made)
    few = replace(made, arena=Arena.PART, classes=tuple(replace(one, in_ram=3) for one in made.classes))
    with pytest.raises(RequestError, match=r"at least 16 of each size.*room for 3 of .*: more RAM \(--ram\), a sm"):
        tiers.check(few)


def test_experts_lie_in_slots_and_in_ram(model):
    _, config, weights = model
    device = torch.device("cpu")
    tier = tiers.build(weights, config, planned(*model[:2], 10), device, 1)
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


@pytest.mark.parametrize("arena", [Arena.COMPLEMENT, Arena.PART])
def test_experts_lie_in_slots_in_ram_and_on_the_disk(model, arena):
    """What the plan says, and in `/metrics` what was met; whoever has a slot has no second place."""
    directory, config, weights = model
    made = planned(directory, config, 10)
    (kind,) = made.classes
    here = kind.experts - 10 if arena is Arena.COMPLEMENT else 16
    made = replace(made, arena=arena, classes=(replace(kind, in_ram=here, on_ssd=kind.experts - 10 - here),))
    tiers.check(made)
    storage, told = Storage(), []
    tier = tiers.build(weights, config, made, torch.device("cpu"), 1, told.append, tiers.Source(directory, storage))
    try:
        stock = storage.stock
        assert stock is tier.supply.stock
        assert stock.slots == stock.held == here
        in_ram, in_vram = np.stack([stock.here(i) for i in range(config.L)]), tier.cache.slot_of >= 0
        assert not (in_ram & in_vram).any()
        assert (np.ptp((in_ram | in_vram).sum(axis=1))) <= 1
        assert sum(told) == sum(tier.layers[0].source.nbytes for _ in range(10 + here))
        assert storage.stats()["storage"]["experts"] == {
            "hits": 0, "misses": 0, "read": 0, "waited": 0.0, "held": here, "slots": here,
        }  # fmt: skip
        layer, expert = np.argwhere(in_ram)[-1].tolist()
        part = weights.layers[layer].moe.down.raw[expert]
        place = int(stock.addresses[layer, expert, 2])
        found = np.ctypeslib.as_array((ctypes.c_uint8 * part.nbytes).from_address(place))
        assert (found == part.reshape(-1)).all()
    finally:
        tier.close()
        storage.close()
