"""Long prompts in memory that slots have lent: the bytes of the network that has all experts, and slots come back."""

import random
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

pytest.importorskip("triton")

from strata.errors import RoomError, TierError
from strata.gguf import open_model
from strata.memory.slots import Rule, SlotCache
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.prompt.stream.ring import Ring
from strata.ops.tiers import ram
from strata.ops.tiers import tier as tier_module
from strata.ops.tiers.borrowing import Borrowing
from strata.ops.tiers.landing import Landing
from strata.ops.tiers.loan import Loan
from strata.ops.tiers.prompts import Shelf, streaming
from strata.ops.tiers.sizes import ring_bytes
from strata.ops.tiers.tier import Tier, TierOptions
from support.lanes import LooseLanes
from support.launch import NATIVE
from support.stored import write_stored
from support.tiered import tiered

DEVICE = torch.device("cuda" if NATIVE else "cpu")
pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]


class Lender:
    """A tier that has so many bytes to lend."""

    def __init__(self, lendable, error=None):
        self.most, self.error, self.borrowed = lendable, error, 0
        self.borrowing = self

    def take(self, nbytes):
        if self.error is not None:
            raise self.error
        self.borrowed = max(self.borrowed, nbytes)


def _loan(lender, ring=0):
    return Loan(lender, 128, 640, lambda rows: 1000 + 10 * rows, ring=ring)


def test_a_short_pass_borrows_nothing_and_a_long_one_what_it_takes_beyond():
    lender = Lender(5000)
    loan = _loan(lender)
    assert [loan.ready(rows) for rows in (1, 128)] == [1, 128]
    assert lender.borrowed == 0
    assert loan.ready(200) == 200
    assert lender.borrowed == 3840, "for 512 rows, as the pass makes room for"
    assert loan.ready(513) == 512, "in steps of 64 where not all can be had"
    lender.most = 5120
    assert loan.ready(640) == 640
    assert lender.borrowed == 5120, "no more than the longest"


def test_the_ring_is_the_last_to_be_had_and_not_for_short_passes():
    for lendable, wide in ((4839, False), (4840, True)):
        lender = Lender(lendable)
        loan = _loan(lender, ring=1000)
        assert loan.ready(200) == 200
        assert (loan.wide, lender.borrowed) == (wide, 4840 if wide else 3840)
        loan.ready(100)
        assert not loan.wide


@pytest.mark.parametrize("error", [RoomError("slots do not hold"), TierError("cannot be lent here")])
def test_where_nothing_can_be_had_passes_are_short_and_it_is_said_once(caplog, error):
    lender, told = Lender(5000, error), []
    loan = _loan(lender)
    loan.drop = loan.forget = lambda: told.append(None)
    assert [loan.ready(rows) for rows in (200, 300, 90)] == [128, 128, 90]
    assert len(caplog.messages) == 1
    assert f"passes over prompts have 128 tokens at most now, for memory is short: {error}" in caplog.text
    lender.error = None
    assert loan.ready(200) == 128
    lender.returning()  # slots have come back
    assert told == [None, None]
    assert loan.ready(200) == 200


def test_slots_that_lend_too_little_are_said_once_for_each_length(caplog):
    """None do where RAM has no places for whose they are: no error says so."""
    lender = Lender(5120)
    loan = _loan(lender)
    assert loan.ready(640) == 640
    assert not caplog.messages
    for lender.most in (3840, 0, 3840, 0):
        assert loan.ready(640) == loan.ready(640) == (512 if lender.most else 128)
    assert caplog.messages == [
        "passes over prompts have 512 tokens at most now, for experts lend 3840 bytes of slots",
        "passes over prompts have 128 tokens at most now, for experts lend 0 bytes of slots",
    ]


def test_a_pass_that_found_no_memory_is_shorter_the_next_time():
    loan = _loan(Lender(5000), ring=1000)
    assert loan.ready(300) == 300
    assert loan.wide
    assert not loan.shorten(128, "out of memory"), "a short one has its own"
    assert loan.shorten(300, "out of memory")
    assert not loan.wide
    assert loan.ready(300) == 128


@pytest.mark.skipif(NATIVE, reason="a device has streams of its own")
@pytest.mark.parametrize("rests", [True, False])
def test_a_pass_that_was_given_up_does_not_write_into_a_windows_room(rests):
    """Its copies and planes go on while the next window begins, which has to wait for them."""
    made = tiered([(0, 1), (1, 4)], room=4)
    dice = random.Random(5)
    try:
        memory, stage = made.tier.room_for_ring
        kind = made.tier.layers[0].source.layout
        assert len(memory) == 4 * kind.nbytes
        area = Landing([one.source for one in made.tier.layers], 2, DEVICE, made.tier.ram.cuts, memory=stage)
        assert len(area) == 2
        spoilt = False
        for _ in range(20):
            lanes = LooseLanes(lambda able: dice.choice([None, None, *able]))
            ring = Ring(memory, Shelf(made.tier, area), 2, 6, most=2, lanes=lanes)
            ring.begin(ring.missing())  # and nobody computes it
            if rests:
                ring.rest()
            stage.fill_(3)
            lanes.computing(partial(memory.fill_, 7))
            lanes.computing(partial(stage.fill_, 7))
            seen = []
            lanes.computing(lambda: seen.append(bool((memory == 7).all() and (stage == 7).all())))  # noqa: B023
            lanes.drain()
            spoilt |= not (bool((memory == 7).all()) and bool((stage == 7).all()) and seen == [True])
        assert spoilt is not rests
    finally:
        made.close()


@pytest.mark.skipif(NATIVE, reason="a device has streams of its own")
def test_a_prompts_copies_wait_for_the_windows_before_it():
    """For they land where these have what the link brings; on a stream that goes before all others."""
    made = tiered([(0, 1), (1, 4)], room=4)
    try:
        memory, stage = made.tier.room_for_ring
        sources = [one.source for one in made.tier.layers]
        shelf = Shelf(made.tier, Landing(sources, 2, DEVICE, made.tier.ram.cuts, memory=stage))
        order: list[str] = []
        shelf.fetch = lambda *_: order.append("copy")
        lanes = LooseLanes(lambda able: "copies" if "copies" in able else None)
        ring = Ring(memory, shelf, 2, 6, most=2, lanes=lanes)
        lanes.computing(lambda: order.append("window"))
        ring.begin(ring.missing())
        lanes.drain()
        assert order[:2] == ["window", "copy"]
    finally:
        made.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A recurrent layer of eight experts."""
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config, weights = load_config(directory.metadata), load_weights(directory, load_config(directory.metadata))
    config = replace(config, mtp=False, ple=None, mixers=config.mixers[:1])
    return config, replace(weights, layers=weights.layers[:1], mtp=None)


@contextmanager
def network(model, slots, short=2):
    """With so many slots, and passes of more than two rows that borrow; or with all experts on the device."""
    config, weights = model
    tier = loan = coming = None
    if slots is not None:
        moes = [layer.moe for layer in weights.layers]
        kinds = ram.layouts(moes)
        cache = SlotCache([kinds[0].nbytes], [0], [slots], experts=config.moe.E, rule=Rule(margin=0.5))
        held = ram.pinned(moes) if NATIVE else ram.mapped(moes)
        options = TierOptions(every=1, moves=4, room=4)
        tier = Tier(kinds, ram.described(moes), held, cache, [0], [slots], config.moe.topk, DEVICE, options)
        tier.fill()
    pool = Pool(config, DEVICE, slots=3, cells=384, kv=torch.float32)
    uploaded = Upload(DEVICE, tier=tier).all(weights)
    ops = GpuOps(config, pool, DEVICE, tier=tier)
    if tier is not None:
        loan = Loan(tier, short, 128, lambda rows: rows, ring=ring_bytes(*tier.largest_bytes, 3))
        moes = [layer.moe for layer in uploaded.layers]
        coming = streaming(tier, moes, config.moe.topk, DEVICE, wide=3, loan=loan)
        ops.lacks(coming, rows=128, loan=loan)
    try:
        yield Network(config, uploaded, ops), tier, coming
    finally:
        if tier is not None:
            tier.close()


def read(net, ids):
    state = net.new_state()
    return [net.read(state, ids), *(t.clone() for _, t in state.tensors())]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


IDS = [5, 9, 11]


@pytest.fixture(scope="module")
def expected(model):
    with network(model, None) as (net, _, _):
        return read(net, IDS), net.predictions(net.window([(net.new_state(), [7])])).tobytes()


@pytest.mark.skipif(NATIVE, reason="so few experts lie in one chunk of a device's memory; tests/gpu/test_gpu_loan.py")
def test_a_long_prompt_borrows_from_slots_which_come_back_when_it_is_read(model, expected, monkeypatch):
    """Short ones through the room of windows, long ones through a ring of their own where there is memory for it."""
    monkeypatch.setattr(tier_module, "QUIET", 2)
    monkeypatch.setattr(Borrowing, "most", property(lambda _: 1 << 40))  # a tier so small has half of nothing
    monkeypatch.setattr(Loan, "_beyond", lambda _, rows: 1 if rows > 2 else 0)
    with network(model, 8) as (net, tier, coming):
        system, whole = tier.room._chunks, tier.room.nbytes
        free = system.free()
        ring = coming._own
        monkeypatch.setattr(Borrowing, "take", partial_borrow(Borrowing.take, 2 * system.size))
        for turn in range(2):
            assert same(read(net, IDS), expected[0])
            assert coming._ring is not ring
            assert tier.room.slots < (8,)
            assert tier.borrowing.nbytes == whole - tier.room.nbytes >= 2 * system.size
            assert system.free() - free == tier.borrowing.nbytes
            if turn:
                tier._take_back(tier._lent)  # what is borrowed comes back by itself
            for _ in range(2):
                assert tier.room.slots < (8,)
                done = net.window([(net.new_state(), [7])])
                assert net.predictions(done).tobytes() == expected[1]
            assert (tier.room.slots, tier.borrowing.nbytes, tier.room.nbytes) == ((8,), 0, whole)
            tier._land(wait=True)
            assert tier.cache.held == (8,), "and filled again"
            assert net.ops._prompt._longest == 512
            assert coming._wide._ring is None
            net.read(net.new_state(), IDS[: 1 + turn])
            assert coming._ring is ring
            assert tier.borrowing.nbytes == 0


def partial_borrow(borrow, most):
    """So small a model has less than its ring takes."""
    return lambda own, nbytes: borrow(own, min(nbytes, most))


@pytest.mark.skipif(NATIVE, reason="so few experts lie in one chunk of a device's memory; tests/gpu/test_gpu_loan.py")
def test_a_pass_without_memory_is_read_in_shorter_ones(model, expected, monkeypatch, caplog):
    """Which end where a long one has the same bytes."""
    ids = [(7 * i + 3) % 90 for i in range(70)]
    with network(model, None) as (net, _, _):
        state = net.new_state()
        net.read(state, ids[:3])
        once = [net.read(state, ids[3:]), *(t.clone() for _, t in state.tensors())]
    with network(model, 5, short=65) as (net, tier, _):
        monkeypatch.setattr(Borrowing, "most", property(lambda _: 1 << 40))
        monkeypatch.setattr(Loan, "_beyond", lambda _, rows: 1 if rows > 65 else 0)
        system = tier.room._chunks
        monkeypatch.setattr(Borrowing, "take", partial_borrow(Borrowing.take, system.size))
        run, lengths = net.ops._prompt.begin, []

        def begin(segments):
            lengths.append(len(segments[0].ids))
            if lengths[-1] > 65:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmuch")
            return run(segments)

        monkeypatch.setattr(net.ops._prompt, "begin", begin)
        state = net.new_state()
        net.read(state, ids[:3])
        assert same([net.read(state, ids[3:]), *(t for _, t in state.tensors())], once)
        assert lengths == [3, 67, 61, 6]
        assert "passes over prompts have 65 tokens at most now" in caplog.text
        assert "Tried to allocate" in caplog.text
        monkeypatch.setattr(net.ops._prompt, "begin", lambda _: (_ for _ in ()).throw(torch.OutOfMemoryError("none")))
        with pytest.raises(torch.OutOfMemoryError, match="none"):
            read(net, IDS[:2])
        monkeypatch.undo()
        done = net.window([(net.new_state(), [7])])
        assert net.predictions(done).tobytes() == expected[1]


@pytest.mark.skipif(NATIVE, reason="so few experts lie in one chunk of a device's memory; tests/gpu/test_gpu_loan.py")
def test_memory_that_does_not_come_back_is_said_once_and_tried_again(model, caplog):
    with network(model, 8) as (_, tier, _):
        system = tier.room._chunks
        tier.borrowing.take(3 * system.size)
        held = tier.cache.held[0]
        system.most = system.taken  # something else has it all
        for _ in range(2):
            tier.borrowing.give_back()
            assert tier.room.slots == (held,)
            assert tier.borrowing.nbytes >= 3 * system.size
        assert len(caplog.messages) == 1
        assert f"{8 - held} slots of experts that a long prompt had borrowed do not come back" in caplog.text
        system.most = 1 << 40
        tier.borrowing.give_back()
        assert (tier.room.slots, tier.borrowing.nbytes) == ((8,), 0)
