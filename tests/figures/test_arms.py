"""Placements on a model of two layers, in Triton's interpreter; and where experts lie in RAM."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from figures import arena as arenas
from figures.arms import capped, skew_of, told_of
from figures.misses import WAYS, misses
from figures.model import Fixed, Model
from figures.session import Session
from figures.sizes import TINY
from figures.summary import figures, share_of_the_first
from figures.windows import turns
from strata.errors import RequestError
from strata.ops.tiers import ram as rams
from strata.ops.tiers.layer import LayerTier
from support.stored import write_stored

# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim")


@pytest.fixture
def model(path):
    """A recurrent layer with n-grams, and one with attention, of eight experts each."""
    found = Model(path, torch.device("cpu"), TINY.context)
    chosen = (1, 3)
    found.config = replace(found.config, mixers=tuple(found.config.mixers[i] for i in chosen))
    found.weights = replace(found.weights, layers=tuple(found.weights.layers[i] for i in chosen))
    found.moes = [layer.moe for layer in found.weights.layers]
    found.kinds, found.experts = rams.layouts(found.moes), rams.described(found.moes)
    found.classes = [0, 0]
    return found


def test_a_fixed_cache_asks_for_what_is_wanted_once():
    cache = Fixed([0, 1, 0], 4, [(0, 1), (1, 2), (2, 3)])
    assert cache.slots == (2, 1)
    moves = [*cache.moves(2), *cache.moves(2)]
    assert [(move.layer, move.expert, move.slot) for move in moves] == [(0, 1, 0), (2, 3, 1), (1, 2, 0)]
    for move in moves:
        cache.begin(move)
        cache.landed(move)
    assert cache.slot_of.tolist() == [[-1, 0, -1, -1], [-1, -1, 0, -1], [-1, -1, -1, 1]]
    assert cache.moves(9) == []
    assert Fixed([0], 4, []).slots == (1,)


def test_the_skew_gives_the_third_its_share():
    skew = skew_of(0.86, 128, 4)
    dice = np.random.default_rng(7)
    rows = np.exp(skew * dice.standard_normal(128))
    chosen = np.argsort(-dice.standard_normal((4000, 128)) * rows, axis=1)[:, :4]
    assert share_of_the_first(np.bincount(chosen.ravel(), minlength=128).tolist(), 0.32) == pytest.approx(
        0.86, abs=0.05
    )


def test_a_cap_that_is_too_small_says_what_is_needed(path):
    model = Model(path, torch.device("cpu"), TINY.context)
    made = capped(model, 2 * 10**9)
    assert [one.in_vram for one in made.classes] == [32]
    told = told_of(made)
    assert (told.pop("cap_gb"), told["conversations"], told["tokens_of_the_conversation"]) == (2.0, 1, TINY.context)
    assert told.pop("borrowed_while_a_long_prompt_is_read_gb") == 0.0
    assert sum(value for name, value in told.items() if name.endswith("_gb")) <= 2.0
    with pytest.raises(RequestError, match=r"of VRAM are needed, 1\.00 GB are there"):
        capped(model, 10**9)


def test_bytes_that_a_window_reads(model):
    facts = model.facts()
    moe = model.moes[0]
    assert facts["expert_bytes"] == sum(m.raw[0].nbytes for m in (moe.gate, moe.up, moe.down))
    assert facts["expert_bytes"] <= facts["slot_bytes"] < 1.1 * facts["expert_bytes"]
    everything = sum(info.nbytes for info in model.directory.tensors.values())
    assert 0.05 * everything < facts["dense_bytes"] < everything - 16 * facts["expert_bytes"]


def test_pages_that_could_be_written_hold_the_same_experts(model):
    there, kept = arenas._writable(model.directory, model.moes)
    assert kept
    for one, other in zip(model.moes, there, strict=True):
        for name in ("gate", "up", "down"):
            a, b = getattr(one, name), getattr(other, name)
            assert np.array_equal(a.raw, b.raw)
            assert a.raw.ctypes.data != b.raw.ctypes.data
            assert not a.raw.flags.writeable
            assert b.raw.flags.writeable
    assert rams._READ_ONLY


@pytest.mark.slow
def test_placements_take_turns_and_windows_say_what_they_met(model, path, tmp_path):
    session = Session(torch.device("cpu"), TINY, path, path, tmp_path)
    session._model = model
    kept = []
    session.keep = kept.append
    found = turns(session, ("half",))
    arm = found["arms"]["half"]
    met = arm["met"]["window1"]
    assert met["windows"] == 1
    assert met["union"] == met["resident"] + met["by_link"] + met["by_host"] == 4  # two layers, two experts of a row
    assert (met["resident"], met["by_host"], met["layers_without_a_miss"]) == (2, 2, 1)  # the last half's are in slots
    assert arm["placed"]["slots"] == 8
    assert arm["host"]["messages"] > 0
    assert figures({"decode": found})["half_resident_tps"] > 0
    assert kept[-1]["arms"]["half"]["rounds"]["decode_tps"] == arm["rounds"]["decode_tps"]
    session.only(())
    assert not session._arms


@pytest.mark.slow
def test_ways_to_launch_what_a_layer_misses_take_turns(model, path, tmp_path, monkeypatch):
    session = Session(torch.device("cpu"), TINY, path, path, tmp_path)
    session._model = model
    session._arms["cap24"] = session.arms("half")["half"]
    names = ("now", "both")
    monkeypatch.setattr("figures.misses.WAYS", {name: WAYS[name] for name in names})
    now = LayerTier.misses
    found = misses(session)
    assert LayerTier.misses is now
    assert tuple(found["rounds"]) == tuple(found["medians"]) == names
    (met,) = {tuple(one["met"].items())[:6] for one in found["last"].values()}  # whichever way, they met the same
    assert dict(met)["by_host"] > 0
    session.only(())
