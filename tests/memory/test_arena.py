"""Host memory for experts: filled to the byte, stopped at any moment, given back in parts."""

import ctypes
import itertools
import logging
import threading
import weakref

import numpy as np
import pytest

from strata.memory.arena import Arena, Region, SlotShape, Stack, fill, filling, stacks_of
from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers, ReadFile
from support.faults import Faulty

MIB = 1 << 20


def layers(path, *, experts=6, parts=(5000, 4096, 9001), count=3):
    """Layers whose parts lie at odd places of a file, one stack after the other."""
    source, found, at = ReadFile(path), [], 37
    for _ in range(count):
        stacks = []
        for nbytes in parts:
            stacks.append(Stack(source, at, nbytes + 3, nbytes, experts))
            at += experts * (nbytes + 3) + 11
        found.append(tuple(stacks))
    assert at <= source.size
    return found


def memory(address, nbytes):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def check(arena, where, data, wanted=None):
    for layer, expert in (
        [(i, e) for i in range(len(where)) for e in range(arena.experts)] if wanted is None else wanted
    ):
        for stack, address in zip(where[layer], arena.parts(layer, expert), strict=True):
            at = stack.of(expert)
            np.testing.assert_array_equal(memory(address, stack.nbytes), data[at : at + stack.nbytes])


def touched(where, wanted):
    """Bytes of the pages that hold experts' parts: some have a page less than a slot has room for."""
    stacks = [(stack, expert) for layer, expert in wanted for stack in where[layer]]
    return sum(-(-(stack.of(expert) % 4096 + stack.nbytes) // 4096) * 4096 for stack, expert in stacks)


@pytest.fixture
def big(some_file):
    return some_file(700_001)


@pytest.mark.parametrize("batch", [1, 30_000, 64 * MIB])
def test_every_part_of_every_expert_is_the_files(big, readers, monkeypatch, batch):
    monkeypatch.setattr(filling, "BATCH", batch)
    path, data = big
    where = layers(path)
    arena = Arena(where, readers)
    seen = []
    end = arena.fill(on_progress=seen.append)
    check(arena, where, data)
    assert arena.present.all()
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total == end.done == 3 * 6 * (5000 + 4096 + 9001)
    assert end.rate > 0
    arena.close()


def test_places_keep_apart_and_layers_start_at_huge_pages(big, readers):
    arena = Arena(layers(big[0]), readers)
    assert arena.region.address % (2 * MIB) == 0
    assert (arena.first % (2 * MIB) == 0).all()
    places = [(arena.place(i, e), int(arena.each[i])) for i in range(3) for e in range(6)]
    for (one, size), (other, _) in itertools.pairwise(places):
        assert one + size <= other
    assert sum(size for _, size in arena.slices) == arena.nbytes <= len(arena.region)
    arena.close()


def test_a_slot_has_room_for_every_shift():
    shape = SlotShape((1, 4096, 4097))
    assert shape.rooms == (4096, 8192, 12288 - 4096)
    for nbytes, room in zip(shape.parts, shape.rooms, strict=True):
        for shift in (0, 1, 4095):
            assert -(-(shift + nbytes) // 4096) * 4096 <= room


def test_the_complement_gives_memory_back_and_takes_it_again(big, readers):
    path, data = big
    where = layers(path)
    arena = Arena(where, readers, huge=False)
    arena.fill()
    before = arena.region.resident()
    assert before == touched(where, [(i, e) for i in range(3) for e in range(6)])
    dropped = [(0, 1), (2, 5), (1, 0)]
    back = sum(arena.drop(*pair) for pair in dropped)
    assert back == sum(int(arena.each[layer]) for layer, _ in dropped)
    assert arena.region.resident() == before - touched(where, dropped)
    assert not any(arena.present[pair] for pair in dropped)
    assert not arena.view(2, 5).any()
    rest = [(i, e) for i in range(3) for e in range(6) if (i, e) not in dropped]
    check(arena, where, data, rest)
    for pair in dropped:
        arena.take(*pair)
    check(arena, where, data)
    assert arena.present.all()
    arena.close()
    assert arena.region.resident() == 0


def test_some_experts_only(big, readers):
    path, data = big
    where = layers(path)
    arena = Arena(where, readers, huge=False)
    wanted = [(1, 3), (1, 2), (0, 5)]
    arena.fill(wanted)
    check(arena, where, data, wanted)
    assert arena.present.sum() == 3
    assert arena.region.resident() == touched(where, wanted)
    arena.close()


def test_another_layout_is_written_by_whoever_knows_it(big, readers):
    arena = Arena(layers(big[0]), readers, sizes=(8192, 4096, 12288))
    arena.view(2, 5)[:] = 7
    assert len(arena.view(2, 5)) == 12288
    assert not arena.view(2, 4).any()
    with pytest.raises(StorageError, match="another layout"):
        arena.fill()
    assert not arena.present.any()
    arena.close()


def interrupted(kind, arena):
    """Ways to be stopped in the middle."""
    if kind == "stop":
        event = threading.Event()
        event.set()
        with pytest.raises(KeyboardInterrupt):
            arena.fill(stop=event)
    elif kind == "progress":

        def stop(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            arena.fill(on_progress=stop)
    else:
        left = iter([filling.HEADROOM + 100_000] + [filling.HEADROOM + 3] * 99)
        with pytest.raises(StorageError, match=r"memory ran short.*given back"):
            arena.fill(available=lambda: next(left))


@pytest.mark.parametrize("kind", ["stop", "progress", "memory"])
def test_stopped_in_the_middle_nothing_is_left(big, readers, monkeypatch, kind):
    monkeypatch.setattr(filling, "BATCH", 20_000)
    path, data = big
    where = layers(path)
    arena = Arena(where, readers)
    interrupted(kind, arena)
    assert arena.region.resident() == 0
    assert not arena.present.any()
    arena.fill()  # and it may be begun again
    check(arena, where, data)
    arena.close()


def test_a_machine_that_swaps_is_told_of(big, readers, monkeypatch, caplog):
    arena = Arena(layers(big[0]), readers)
    with caplog.at_level(logging.WARNING, "strata.memory"):
        arena.fill()
        assert not caplog.records
        monkeypatch.setattr(Region, "resident", lambda _: 300_000)
        arena.fill()
    assert "25746 are no longer in memory: the machine swaps" in caplog.text
    arena.close()


def test_a_failing_disk_leaves_nothing(big):
    pool = Readers(2, Faulty(lambda call, _fd, n, _at: -5 if call > 20 else n).functions)
    arena = Arena(layers(big[0]), pool)
    with pytest.raises(StorageError, match="Input/output error"):
        arena.fill()
    assert arena.region.resident() == 0
    pool.close()


def test_a_region_lives_as_long_as_reads_into_it(big):
    path, data = big
    gate = threading.Event()
    pool = Readers(1, Faulty(lambda _call, _fd, n, _at: gate.wait() and n).functions)
    region = Region(MIB)
    alive = weakref.ref(region)
    ticket = pool.submit([Item(ReadFile(path), 0, 100, region.address)], region)
    array = region.array
    del region
    assert alive() is not None
    gate.set()
    ticket.wait()
    np.testing.assert_array_equal(array[:100], data[:100])
    del ticket
    pool.close()


def test_memory_that_cannot_be_had_is_refused():
    with pytest.raises(StorageError, match="bytes of memory cannot be had"):
        Region(1 << 60)


def test_locking_says_why_it_cannot(monkeypatch):
    region = Region(64 * 4096)
    region.array[:] = 1
    why = region.lock(0, 4096)
    assert isinstance(why, str)
    region.unlock()
    monkeypatch.setattr("strata.memory.arena.region._library", Refusing)
    assert region.lock() == "Cannot allocate memory"


class Refusing:
    def mlock(self, *_):
        ctypes.set_errno(12)
        return -1


def test_untouched_memory_is_not_there():
    region = Region(64 * 4096, huge=False)
    assert region.resident() == 0
    region.array[5 * 4096] = 1
    assert region.resident() == 4096
    assert region.resident(0, 5 * 4096) == 0
    assert region.give_back(5 * 4096 + 1, 6 * 4096) == 0
    assert region.array[5 * 4096] == 1


def test_stacks_are_found_in_the_file_that_holds_them(tmp_path):
    data = np.random.default_rng(2).integers(0, 256, 5000, dtype=np.uint8)
    (tmp_path / "a").write_bytes(bytes(10))
    (tmp_path / "b").write_bytes(data.tobytes())
    files = [(np.memmap(tmp_path / name, np.uint8, "r"), ReadFile(tmp_path / name)) for name in "ab"]
    mapped = files[1][0]
    both = mapped[100 : 100 + 4 * 6 * 30].reshape(4, 6, 30)
    one, other = stacks_of([both[:, :2], both[:, 2:]], files)
    assert (one.offset, one.step, one.nbytes, one.experts) == (100, 180, 60, 4)
    assert (other.offset, other.step, other.nbytes) == (160, 180, 120)
    np.testing.assert_array_equal(data[other.of(3) :][:120], both[3, 2:].reshape(-1))
    with pytest.raises(StorageError, match="not 4"):
        one.of(4)
    with pytest.raises(StorageError, match="only where they are kept as the file stores them"):
        stacks_of([np.zeros((4, 6, 30), np.uint8)], files)
    with pytest.raises(StorageError, match="only where"):
        stacks_of([both[:, :, :15]], files)


def test_layers_of_different_numbers_of_experts_are_refused(big, readers):
    where = layers(big[0])
    short = tuple(Stack(s.file, s.offset, s.step, s.nbytes, 5) for s in where[0])
    with pytest.raises(StorageError, match=r"different numbers of experts: \[5, 6\]"):
        Arena([short, *where[1:]], readers)


def test_fill_of_nothing(readers):
    end = fill(Region(10), [], readers)
    assert (end.done, end.total) == (0, 0)
