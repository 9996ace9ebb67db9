"""Measuring functions: with clocks that are told what to say, and with tiny sizes on the machine at hand."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from strata.errors import StrataError
from strata.experts.compute import Stored, product
from strata.experts.compute.matrix import KERNEL_TYPES
from strata.experts.pool import Pool
from strata.formats import by_name, dequantise
from strata.lab.rates import disk as disks
from strata.lab.rates.blocks import blocks
from strata.lab.rates.cpu import Experts, Mix, Products
from strata.lab.rates.disk import Disk, scratch
from strata.lab.rates.ram import counts, memory, ram_read, reader
from strata.lab.rates.rounds import Pace, Sample, StoppedError
from strata.memory.errors import StorageError
from strata.memory.reads import ReadFile

TINY = Pace(rounds=2, seconds=0.001)


def clock(*steps: float):
    """A clock that goes on by these, one after the other."""
    now = itertools.accumulate(steps, initial=0.0)
    return lambda: next(now)


def test_the_median_counts_and_the_first_time_does_not():
    #                    warm-up         1 s            5 s            2 s
    pace = Pace(3, clock=clock(100.0, 0.0, 1.0, 0.0, 5.0, 0.0, 2.0))
    assert pace.timed(lambda: None) == Sample(2.0, 1.0, 5.0, 3)
    assert Sample(2.0, 1.0, 5.0, 3).rate(10.0) == Sample(5.0, 2.0, 10.0, 3)
    assert Sample(2.0, 1.0, 5.0, 3).times(1e3) == Sample(2e3, 1e3, 5e3, 3)


def test_a_round_takes_about_as_long_as_it_should():
    pace = Pace(3, seconds=0.5)
    assert pace.amount(0.01, 8, most=10_000) == 400
    assert pace.amount(0.01, 8, most=100) == 100
    assert pace.amount(60.0, 8, least=8, most=100) == 8
    assert pace.amount(0.0, 8, most=100) == 100


def test_who_asks_to_stop_waits_for_one_round():
    done = []
    pace = Pace(9, stop=lambda: len(done) == 3)
    with pytest.raises(StoppedError):
        pace.timed(lambda: done.append(1))
    assert len(done) == 3


def test_memory_is_read_whole_by_any_number_of_threads():
    words = memory(1 << 16)
    assert int(reader()(words)) == len(words)
    for threads in (1, 3):
        found = ram_read(words, (None,) * threads, TINY)
        assert 0 < found.least <= found.median <= found.most
    words[7] = 2
    with pytest.raises(StrataError, match="read as something else"):
        ram_read(words, (None, None), TINY)
    assert counts(6) == [1, 2, 4, 6]
    assert counts(8) == [1, 2, 4, 8]
    assert (counts(6, quick=True), counts(1, quick=True), counts(1)) == ([1, 6], [1], [1])


def test_threads_end_when_reading_is_stopped():
    import threading

    before = threading.active_count()
    with pytest.raises(StoppedError):
        ram_read(memory(4096), (None, None), Pace(stop=lambda: True))
    assert threading.active_count() == before


def test_a_file_to_read_back_leaves_nothing(tmp_path):
    told = []
    with scratch(tmp_path, 3 * disks.WRITTEN // 2, TINY, told.append) as source:
        assert list(tmp_path.iterdir()) == [], "nothing is left if the process ends here"
        assert source.size == 3 * disks.WRITTEN // 2
        read = bytearray(64)
        source.read(memoryview(read), 12345)
        assert bytes(read) != bytes(64)
    assert told == [0, disks.WRITTEN]
    with pytest.raises(StoppedError), scratch(tmp_path, 4096, Pace(stop=lambda: True)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_said(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disks.os, "fsync", full)
    with pytest.raises(StrataError, match="cannot be written: No space left"), scratch(tmp_path, 4096, TINY):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("direct", [True, False])
def test_reads_are_as_many_and_as_long_as_they_should_be(tmp_path, monkeypatch, direct):
    path = tmp_path / "random"
    path.write_bytes(np.random.default_rng(0).bytes((2 << 20) + 777))
    asked = []
    real = Disk._read
    monkeypatch.setattr(Disk, "_read", lambda self, items: asked.append(items) or real(self, items))
    disk = Disk(ReadFile(path, direct=direct), 2, TINY)
    try:
        found = disk.random(5000)
        assert 0 < found.least <= found.median
        assert {item.nbytes for items in asked for item in items} == {5000}
        assert all(item.offset % 4096 == 0 and item.offset + 5000 <= path.stat().st_size for i in asked for item in i)
        assert len({item.offset for items in asked for item in items}) > 8, "anywhere"
        assert len(asked[0]) == disks.FEW
        assert len({len(items) for items in asked[1:]}) == 1
        asked.clear()
        disk.sequential()
        (first,) = asked[0]
        assert (first.offset, first.nbytes) == (0, path.stat().st_size)
        with pytest.raises(StrataError, match="too short to be read at random in pieces of 4000000 bytes"):
            disk.random(4_000_000)
    finally:
        disk.close()


def test_what_is_read_is_what_is_there(tmp_path):
    path = tmp_path / "random"
    path.write_bytes(np.random.default_rng(0).bytes(1 << 20))
    disk = Disk(ReadFile(path), 1, TINY)
    try:
        disk._random(4096, 1)
        read = disk._memory[:4096].tobytes()
        assert path.read_bytes().find(read) % 4096 == 0
    finally:
        disk.close()


def test_a_disk_that_fails_is_said(tmp_path):
    path = tmp_path / "random"
    path.write_bytes(bytes(1 << 20))
    disk = Disk(ReadFile(path, direct=False), 2, TINY)
    os.truncate(path, 4096)
    try:
        with pytest.raises(StorageError, match="was it changed"):
            disk.random(8192)
    finally:
        disk.close()


@pytest.mark.parametrize("name", sorted(KERNEL_TYPES))
def test_blocks_to_compute_with_are_numbers(name):
    kind = by_name(name)
    raw = blocks(name, 4, 512)
    assert raw.shape == (4, kind.row_bytes(512))
    if name not in {"MXFP4", "NVFP4", "IQ1_M"}:  # whose scales are no float16 at one place
        weights = dequantise(kind, raw)
        assert np.isfinite(weights).all()
        assert 0 < np.abs(weights).max() < 10


def test_kernels_are_measured_with_the_bytes_they_read():
    pool = Pool((None,))
    matrix = Products("Q8_0", 100_000, pool, Pace(2, clock=clock(*itertools.repeat(0.5, 6))))
    rows = 100_000 // by_name("Q8_0").row_bytes(2560)
    assert matrix._raw.shape[0] == rows
    assert matrix.rows(3) == Sample(*(matrix._raw.nbytes / 1e9 / 0.5,) * 3, 2)
    out = product(pool, Stored(by_name("Q8_0"), matrix._raw), np.ones((1, 2560), np.float32))
    assert np.isfinite(out).all()


def test_experts_of_some_rows_all_go_elsewhere():
    mix = Mix("Q8_0", "Q8_0", "Q8_0", 64, 32, 2)
    assert mix.nbytes == 3 * 64 * 32 * 34 // 32
    layer = Experts(mix, 0, Pool((None,)), Pace(2, clock=clock(*itertools.repeat(0.001, 20))))
    assert layer.rows(4).median == pytest.approx(1000.0 / 8)
    route = layer._route(8)
    assert route.shape == (8, 2)
    assert len(set(route.reshape(-1).tolist())) == 16


def test_which_disk_a_folder_is_on(tmp_path):
    from strata.loading.disks import existing, source

    mounts = tmp_path / "mountinfo"
    root = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        "1 1 8:1 / / rw - ext4 /dev/root rw\n"
        f"2 1 8:2 / {root} rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw\n"
        "nonsense\n3 1 0:5 / /proc rw\n"
    )
    assert source(tmp_path, mounts) == "/dev/root (ext4)"
    (tmp_path / "a b").mkdir()
    assert source(tmp_path / "a b" / "not" / "yet", mounts) == "/dev/nvme0n1p2 (xfs)"
    assert existing(tmp_path / "a b" / "not" / "yet") == tmp_path / "a b"
    assert source(tmp_path, Path("/nowhere")).startswith("device ")
