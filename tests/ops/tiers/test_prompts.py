"""Prompts whose experts lie in tiers: brought through a ring, with the bytes of the network that has them all."""

import random
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine import Request, Sampling, Token, Trace
from strata.ops.planes import pack
from strata.ops.prompt.stream.ring import Ring
from strata.ops.tiers.landing import Landing
from strata.ops.tiers.measure import copy_cost
from strata.ops.tiers.prompts import Shelf, streaming
from strata.ops.tiers.sizes import ring_bytes
from strata.ops.tiers.tier import QUIET
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.lanes import LooseLanes
from support.launch import NATIVE
from support.slim import network, slim, state_of, tier_with
from support.stocked import disk
from support.tiered import tiered

DEVICE = torch.device("cuda" if NATIVE else "cpu")
pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]


def _shelf(tier, most, **more):
    return Shelf(tier, Landing([one.source for one in tier.layers], most, DEVICE, tier.ram.cuts, **more))


def _planes(made, layer, expert):
    """Of an expert, by part of its slot."""
    moe, kind = made.moes[layer], made.tier.layers[layer].source.layout
    found = []
    for part, matrix in zip(kind.parts, (moe.gate, moe.up, moe.down), strict=True):
        raw = torch.from_numpy(matrix.raw[expert]).to(DEVICE)
        found.append((part, pack(matrix.type.name, raw, matrix.shape[-1])))
    return found


def test_what_comes_is_the_experts_planes():
    """Into buffers that are wider than the slots, too; two groups one after the other at one place."""
    made = tiered([(0, 1), (1, 4)])
    try:
        shelf = _shelf(made.tier, 3, places=2)
        shelf.begin()
        assert list(shelf.missing(0)) == [0, 2, 3, 4, 5]
        assert list(shelf.missing(1)) == [0, 1, 2, 3, 5]
        kind = shelf.layout(1)
        memory = torch.full((4, kind.nbytes + 512), 255, dtype=torch.uint8, device=DEVICE)
        for experts, buffers in (([3, 1], [1, 3]), ([0, 2, 5], [0, 1, 3])):
            shelf.fetch(1, experts, 1)
            to = torch.tensor([*buffers, 2], dtype=torch.int32, device=DEVICE)
            shelf.bring(1, memory[:, : kind.nbytes], len(experts), 1, to)
        for expert, buffer in ((5, 3), (0, 0), (2, 1)):
            for part, planes in _planes(made, 1, expert):
                assert torch.equal(memory[buffer, part][: len(planes)], planes)
        assert (memory[2] == 255).all()
        assert (memory[:, kind.nbytes :] == 255).all()
    finally:
        made.close()


@pytest.mark.skipif(NATIVE, reason="a device has streams of its own")
def test_places_and_buffers_are_used_again_when_they_are_free():
    """On streams that go on whenever they like: five groups of two layers through two places and four buffers."""
    dice = random.Random(3)
    made = tiered([(0, 1), (1, 4)])
    try:
        lanes = LooseLanes(lambda able: dice.choice([None, *able]))
        kind, right = made.tier.layers[0].source.layout, []
        memory = torch.zeros(4 * kind.nbytes, dtype=torch.uint8)
        ring = Ring(memory, _shelf(made.tier, 2, places=2), 2, 6, most=2, lanes=lanes)

        def look(layer, slots, experts):
            for expert in experts:
                for part, planes in _planes(made, layer, expert):
                    here = slots.data[int(slots.slot_of[expert]), part][: len(planes)]
                    right.append(torch.equal(here, planes))

        ring.begin(ring.missing())
        for layer in range(2):
            for slots, experts in ring.slots(layer):
                lanes.computing(partial(look, layer, slots, experts))
        lanes.drain()
        assert right == [True] * 30
    finally:
        made.close()


def test_a_rings_memory():
    """And one slot more, so that it can begin where slots do; and places for three groups."""
    assert ring_bytes(1000, 900, 30) == 31_000 + 3 * 9000
    made = tiered([])
    try:
        before, sizes = torch.zeros, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "zeros", lambda *n, **k: sizes.append(before(*n, **k).nbytes) or before(*n, **k))
            moes = [SimpleNamespace(slots=layer.slots) for layer in made.tier.layers]
            streaming(made.tier, moes, 2, DEVICE, buffers=6)
        source = made.tier.layers[0].source
        assert sum(size for size in sizes if size > 1000) == ring_bytes(source.layout.nbytes, source.nbytes, 6)
    finally:
        made.close()


class Clock:
    """An event of no GPU."""

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


def test_what_an_expert_costs_a_prompt_is_measured(monkeypatch, tmp_path):
    """Whatever RAM holds."""
    if not NATIVE:
        monkeypatch.setattr(torch.cuda, "Event", Clock)
    with disk(tmp_path / "experts.bin", 0.4) as stored:
        for more in ({}, {"ram": stored}):
            made = tiered([], **more)
            try:
                sources = [one.source for one in made.tier.layers]
                assert 0 < copy_cost(made.tier, Landing(sources, 3, DEVICE, made.tier.ram.cuts)) < 1e5
            finally:
                made.close()


def test_slots_are_lent_to_a_prompt_and_come_back():
    """The coldest, a quarter at most; missing at once, and filled again when windows have gone on for a while."""
    made = tiered([])
    tier = tier_with(made.moes, 9, 2)
    cache = tier.cache
    try:
        before = cache.slot_of.copy()
        assert before[0, 2] >= 0
        cache.seen(np.array([(layer, e, 1) for layer in range(2) for e in range(6) if (layer, e) != (0, 2)], np.int32))
        lent = tier.lend(5)
        assert len(lent) == 2 == int((before >= 0).sum()) // 4
        assert before[0, 2] in lent
        assert np.array_equal(tier.table.cpu().numpy(), np.where(np.isin(before, lent), -1, before))
        assert tier.lend(1) == lent
        assert tier.lend(0) == ()
        for _ in range(QUIET):
            tier.begin()
            assert cache.held == (7,)
            tier.window_begun()
            tier.settled()
        tier._land(wait=True)
        assert cache.held == (9,)
        cache.seen(np.argwhere((cache.slot_of >= 0) & (cache.slot_of < 7)).astype(np.int32))
        assert set(tier.lend(5)) == {7, 8}
        cache.resize(0, 8)
        lent = tier.lend(5)
        assert 7 in lent, "it is still there"
        assert len(lent) == 2
        assert max(lent) < 8
    finally:
        tier.close()
        made.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return slim(tmp_path_factory.mktemp("slim"), (1, 3))


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    return slim(tmp_path_factory.mktemp("slim"), (0,))


def _read(model, slots, ids, ram_of=None):
    with network(model, slots, ram_of) as (net, _, coming):
        state = net.new_state()
        residual = net.read(state, ids)
        return residual, state_of(state), coming


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.2])
def test_prompts_do_not_depend_on_the_tier(model, tmp_path, share):
    """All missing experts in RAM, or most of them on a disk."""
    ids = [5, 9]
    expected, kept, _ = _read(model, None, ids)
    with disk(tmp_path / "experts.bin", share or 0.0, landing=2) as stored:
        found, state, coming = _read(model, 5, ids, stored if share else None)
        assert coming.brought > 0
        assert coming.width in {5, 6}, "one of five slots is lent, if it lies near enough for a number of 32 bits"
        assert torch.equal(found, expected)
        assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
        assert share is None or stored.stock.stats.misses > 0


def _spoken(model, slots):
    """Answers of two requests that come one tick after the other, what was computed when, and whether experts moved."""
    plain = Sampling(temperature=0.0)
    waiting = [
        Request("talk", (7, 5), plain, max_tokens=3),
        Request("long", (5, 9, 11, 5), plain, max_tokens=1, marks=(2,)),  # two passes
    ]
    with network(model, slots) as (net, tier, coming):
        trace, before = Trace(), None if tier is None else tier.cache.slot_of.copy()
        scheduler = Scheduler(net, Options(rows=64, keep=False, same_forms=False, wait=60.0), trace=trace)
        found: dict[str, list] = {"talk": [], "long": []}
        while waiting or not scheduler.idle:
            if waiting:
                scheduler.submit(waiting.pop(0))
            for name, event in scheduler.tick():
                found[name].append((event.id, event.logprob) if isinstance(event, Token) else event.reason)
        kinds = "".join("p" if record.read_us else "w" for record in trace.records)
        return found, kinds, coming, tier is not None and bool((before != tier.cache.slot_of).any())


@pytest.mark.slow
def test_answers_go_on_between_the_passes_of_a_long_prompt(one_layer):
    """Windows that move experts between passes that bring them: both answers are those of whoever has all experts."""
    expected, order, _, _ = _spoken(one_layer, None)
    found, kinds, coming, moved = _spoken(one_layer, 3)
    for one in (order, kinds):
        assert sorted(one) == sorted("pwpwp")
        assert "wp" in one, "windows of the one between passes of the other"
    assert NATIVE or (order, kinds) == ("pwpwp", "pwpwp"), "a GPU's share follows its clock"
    assert found == expected
    assert coming.passes == 3
    assert coming.brought > 0
    assert moved
