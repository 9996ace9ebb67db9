"""Experts beyond memory: whatever is visited, in whatever memory there is, has the file's bytes while it is visited."""

import contextlib
import ctypes
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.memory.arena import SlotShape, Stack, filling
from strata.memory.errors import StorageError
from strata.memory.reads import Readers, ReadFile
from strata.memory.tier import ExpertTier
from strata.memory.tier.room import shared_out
from support.faults import Faulty

EXPERTS, COUNT = 9, 4
PARTS = ((5000, 4096, 901), (640, 640, 8000))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Four layers of two sizes in one file."""
    path = tmp_path_factory.mktemp("tier") / "experts.bin"
    data = np.random.default_rng(0).integers(0, 250, 400_000, dtype=np.uint8)
    path.write_bytes(data.tobytes())
    source, layers, at = ReadFile(path), [], 96
    for layer in range(COUNT):
        stacks = []
        for nbytes in PARTS[layer % 2]:
            stacks.append(Stack(source, at, nbytes, nbytes, EXPERTS))
            at += EXPERTS * nbytes + 32
        layers.append(tuple(stacks))
    assert at < len(data)
    return layers, data


def bytes_for(*slots):
    """Memory for so many slots of each size, and for the bytes that are nobody's."""
    return 8192 + sum(SlotShape(parts).nbytes * count for parts, count in zip(PARTS, slots, strict=True))


def at(address, nbytes):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def check(tier, layers, data, layer, group):
    for part, stack in enumerate(layers[layer]):
        for expert in group.tolist():
            first = stack.of(expert)
            found = at(int(tier.addresses(layer)[part, expert]), stack.nbytes)
            np.testing.assert_array_equal(found, data[first : first + stack.nbytes])
            assert tier.addresses(layer)[part, expert] + stack.nbytes <= tier.end
            assert tier.addresses(layer)[part, expert] % 32 == first % 32


def check_others(tier, layers):
    """Who is not here has bytes that are no numbers."""
    for layer, stacks in enumerate(layers):
        gone = np.flatnonzero(~tier.held.holds(layer, np.arange(EXPERTS)))
        for part, stack in enumerate(stacks):
            for expert in gone.tolist():
                assert (at(int(tier.addresses(layer)[part, expert]), stack.nbytes) == 0xFF).all()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_visits_in_any_memory(model, data):
    layers, content = model
    pool = Readers(data.draw(st.sampled_from([1, 3])))
    slots = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    tier = ExpertTier(layers, pool, bytes_for(*slots), half_life=data.draw(st.sampled_from([0.5, 100.0])))
    if data.draw(st.booleans()):
        tier.warm(headroom=0)
        check_others(tier, layers)
    hits = misses = 0
    try:
        for _ in range(data.draw(st.integers(1, 4))):
            for layer in range(COUNT):
                wanted = np.array(sorted(data.draw(st.sets(st.integers(0, EXPERTS - 1), max_size=EXPERTS))), np.int64)
                here = int(tier.held.holds(layer, wanted).sum())
                hits, misses = hits + here, misses + len(wanted) - here
                seen = []
                leave = data.draw(st.integers(0, 12))  # some end early, as an interrupted pass does
                with contextlib.closing(tier.visit(layer, wanted)) as groups:
                    for group in groups:
                        check(tier, layers, content, layer, group)
                        seen += group.tolist()
                        if leave == 0:
                            break
                        leave -= 1
                    else:
                        assert sorted(seen) == wanted.tolist()
                assert tier.held.pinned == 0
                check_others(tier, layers)
        assert (tier.stats.hits, tier.stats.misses) == (hits, misses)
        assert tier.held.held <= tier.slots
    finally:
        pool.close()
        tier.close()


def test_with_room_for_all_nothing_is_read_twice(model):
    layers, data = model
    faulty = Faulty(lambda _call, _fd, n, _at: n)
    pool = Readers(2, faulty.functions)
    tier = ExpertTier(layers, pool, bytes_for(2 * EXPERTS, 2 * EXPERTS))
    assert tier.slots == COUNT * EXPERTS
    told = []
    tier.warm(on_progress=told.append, headroom=0)
    assert told[-1].done == told[-1].total == sum(2 * EXPERTS * sum(parts) for parts in PARTS)
    calls = faulty.calls
    for layer in range(COUNT):
        (group,) = tier.visit(layer, np.arange(EXPERTS))
        check(tier, layers, data, layer, group)
    assert faulty.calls == calls
    assert tier.stats.misses == tier.stats.read == 0
    pool.close()


def test_hits_come_before_what_is_read(model):
    layers, _ = model
    gate = threading.Event()
    gate.set()
    pool = Readers(1, Faulty(lambda _call, _fd, n, _at: gate.wait() and n).functions)
    tier = ExpertTier(layers, pool, bytes_for(12, 12))
    list(tier.visit(0, np.array([2, 4])))
    gate.clear()
    groups = tier.visit(0, np.arange(6))
    assert next(groups).tolist() == [2, 4]
    gate.set()
    assert sorted(e for group in groups for e in group.tolist()) == [0, 1, 3, 5]
    assert tier.stats.waited > 0
    assert tier.stats.read == 6 * sum(PARTS[0])
    pool.close()


def test_often_visited_experts_stay(model):
    """A scan through all of a layer's experts does not wash out what every pass visits."""
    layers, _ = model
    pool = Readers(2)
    tier = ExpertTier(layers[:1], pool, bytes_for(4, 0))
    for _ in range(20):
        list(tier.visit(0, np.array([3, 5])))
    list(tier.visit(0, np.arange(EXPERTS)))
    assert tier.held.holds(0, np.array([3, 5])).all()
    pool.close()


def test_a_failing_disk_leaves_a_tier_that_goes_on(model):
    layers, data = model
    broken = {"from": 10}
    pool = Readers(1, Faulty(lambda call, _fd, n, _at: -5 if call > broken["from"] else n).functions)
    tier = ExpertTier(layers, pool, bytes_for(3, 3))
    with pytest.raises(StorageError, match="Input/output error"):
        list(tier.visit(0, np.arange(EXPERTS)))
    assert tier.held.pinned == 0
    check_others(tier, layers)
    broken["from"] = 1 << 30
    for group in tier.visit(0, np.arange(EXPERTS)):
        check(tier, layers, data, 0, group)
    pool.close()


def test_warming_up_can_be_stopped(model, readers, monkeypatch):
    layers, data = model
    monkeypatch.setattr(filling, "BATCH", 10_000)
    tier = ExpertTier(layers, readers, bytes_for(12, 12))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tier.warm(on_progress=stop, headroom=0)
    assert tier.held.held == tier.held.pinned == 0
    for group in tier.visit(1, np.arange(EXPERTS)):
        check(tier, layers, data, 1, group)


def test_too_little_memory_is_refused_with_what_would_do(model, readers):
    layers, _ = model
    enough = bytes_for(5, 5)
    assert ExpertTier(layers, readers, enough, least=5).slots >= 10
    with pytest.raises(StorageError, match=f"{enough - 1} bytes are too few for experts; at least {enough} are needed"):
        ExpertTier(layers, readers, enough - 1, least=5)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 900), st.integers(1, 12))
def test_slots_are_shared_out_within_the_bytes(one, other, pages, least):
    shapes = [SlotShape((100,)), SlotShape((9000, 100))]
    nbytes = pages * 4096
    needed = min(one, least) * shapes[0].nbytes + min(other, least) * shapes[1].nbytes
    if needed > nbytes:
        with pytest.raises(StorageError, match=str(needed)):
            shared_out(shapes, [one, other], nbytes, least)
        return
    counts = shared_out(shapes, [one, other], nbytes, least)
    assert sum(c * s.nbytes for c, s in zip(counts, shapes, strict=True)) <= nbytes
    assert all(min(full, least) <= count <= full for count, full in zip(counts, (one, other), strict=True))
    whole = one * shapes[0].nbytes + other * shapes[1].nbytes
    assert (counts == [one, other]) == (whole <= nbytes)
