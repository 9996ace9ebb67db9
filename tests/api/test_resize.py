"""Another share of a GPU's memory while a model runs: numbers, refusals, and what a model says of itself afterwards."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import strata
from strata.errors import RequestError, RoomError, TierError
from strata.gguf import open_model
from strata.loading import resizing, tiers
from strata.loading.device import Placement
from strata.model import load_config, load_weights
from strata.ops.tiers.room import FixedRoom
from support.planned import planned
from support.stored import write_stored

OTHER = 700, 200, 100
"""Bytes of other weights, of conversations and of work space."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    config, weights = replace(config, mtp=False), replace(load_weights(directory, config), mtp=None)
    half = planned(directory, config, config.L * config.moe.E // 2)
    tier = tiers.build(weights, config, half, torch.device("cpu"), 1)
    yield tier, half.sizes.slot_bytes
    tier.close()


def placed(slots, whole):
    dense, cache, work = OTHER
    return Placement(
        "cuda:0", "Abacus 9", dense + slots, 64, cache, work, storage="all are in RAM", share=slots / whole, slots=slots
    )


def test_it_shrinks_to_nothing_and_grows_to_all_with_true_words(made):
    tier, whole = made
    at, other = placed(whole // 2, whole), sum(OTHER)
    each, all_ = whole // tier.table.numel(), tier.table.numel()
    at = resizing.resize(tier, at, other)
    assert (tier.room.slots, at.slots, at.share) == ((0,), 0, 0.0)
    assert (tier.cache.slot_of == -1).all()
    assert "among them 0% of the experts; all are in RAM" in str(at)
    for wanted in (3, 10, 7):
        at = resizing.resize(tier, at, other + wanted * each + tier.room.waste)
        assert tier.room.slots == (wanted,)
        assert at.share == pytest.approx(wanted / all_)
        assert at.weights - at.slots == OTHER[0]
        assert at.weights + at.cache + at.work <= other + wanted * each + tier.room.waste
        assert tier.room.nbytes <= at.slots
        tier.fill()
        assert (tier.cache.slot_of >= 0).sum() == wanted
    at = resizing.resize(tier, at, 10 * whole)
    assert (tier.room.slots, at.slots, at.share) == ((all_,), whole, 1.0)
    assert "of the experts" not in str(at)


def test_growth_is_refused_with_numbers_and_nothing_is_lost(made):
    tier, whole = made
    at, other = placed(whole, whole), sum(OTHER)
    at = resizing.resize(tier, at, other + whole // 4 + tier.room.waste)
    tier.fill()
    system, before, slots = tier.room._chunks, tier.cache.slot_of.copy(), tier.room.slots
    try:
        system.most = system.taken + 2
        with pytest.raises(RoomError, match=r"cannot grow to .* is the most now; nothing has changed") as caught:
            resizing.resize(tier, at, other + whole + tier.room.waste)
        assert resizing.shown_bytes(2 * system.size) + " are free" in str(caught.value)
        with pytest.raises(RoomError, match=": 0 B are free"):  # what is kept free is nobody's
            resizing.resize(tier, replace(at, kept=2 * system.size), other + 2 * whole)
        assert (tier.cache.slot_of == before).all()
        assert tier.room.slots == slots
        assert str(at.share)[:4] == str(placed(at.slots, whole).share)[:4]
    finally:
        system.most = 1 << 40


def test_what_makes_no_sense_is_said(made):
    tier, whole = made
    at = placed(whole, whole)
    before = tier.room.slots
    for vram in (0, -5, True, 1.5, None, "12GB"):
        with pytest.raises(RequestError, match="vram must be a number of bytes of at least 1"):
            resizing.resize(tier, at, vram)
    with pytest.raises(RequestError, match=r"cannot go down to .*: .* are needed without a single routed expert"):
        resizing.resize(tier, at, sum(OTHER) - 1)
    with pytest.raises(RequestError, match="runs on the CPU"):
        resizing.resize(None, Placement("cpu"), 10**9)
    with pytest.raises(RequestError, match=r"nowhere else, so none can be given back; start it with a --vram below"):
        resizing.resize(None, Placement("cuda:0", "Abacus 9", 10**10), 10**9)
    assert tier.room.slots == before


def test_slots_stay_where_ram_has_no_places_for_what_would_go(made, monkeypatch):
    tier, whole = made
    at, all_ = placed(whole, whole), tier.table.numel()
    before = tier.room.slots
    each = whole // all_

    def asked(places, slots):
        stock = SimpleNamespace(counts=(places,), classes=[0] * len(tier.layers))
        monkeypatch.setattr(tier, "supply", SimpleNamespace(stock=stock))
        resizing._check_ram(tier, tier.cache, resizing._divided(tier.cache, slots * each))

    asked(16, 0)  # group by group
    asked(3, all_ - 3)
    for places, slots in ((15, 0), (3, all_ - 4)):
        with pytest.raises(RequestError, match=f"has room for {places} of one size; to compute {all_ - slots} from"):
            asked(places, slots)
    with pytest.raises(RequestError, match="Start the model with this --vram"):
        resizing.resize(tier, at, sum(OTHER))
    assert tier.room.slots == before


def test_where_the_system_cannot_do_it_that_is_said(made, monkeypatch):
    tier, whole = made
    fixed = FixedRoom([64], tier.room.slots, torch.device("cpu"), "no such calls")
    monkeypatch.setattr(tier, "room", fixed)
    with pytest.raises(TierError, match="no such calls; restart with another --vram"):
        resizing.resize(tier, placed(whole, whole), sum(OTHER))


def test_a_model_says_what_it_takes_now(made):
    tier, whole = made
    with strata.load("pebble", threads=1) as model:
        with pytest.raises(RequestError, match="runs on the CPU"):
            model.resize(10**9)
        before = model.ready
        engine = model.source.engine
        engine._tier, engine._placement = tier, placed(whole, whole)
        try:
            done = model.resize(sum(OTHER) + whole // 2 + tier.room.waste)
            assert done.placed == model.ready.placed == str(engine._placement) != before.placed
            assert (done.slots, done.experts, done.slot_bytes) == (
                tier.room.slots[0], tier.table.numel(), tier.room.nbytes,
            )  # fmt: skip
            assert engine.stats()["slots"] == done.slots
            with pytest.raises(RequestError, match="vram must be"):
                model.resize("12GB")
        finally:
            engine._tier = None
