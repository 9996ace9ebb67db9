"""Reads by threads: the file's bytes, whatever the file system thinks of direct reads (case M17)."""

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.memory.errors import StorageError
from strata.memory.reads import Item, Readers, ReadFile, file, pread
from strata.memory.reads import readers as room
from support.faults import Faulty

EDGES = [
    (0, 1),
    (0, 4096),
    (4095, 2),
    (4096, 4096),
    (8191, 5000),
    (299_917, 90),
    (300_006, 1),
    (1, 300_006),
    (0, 300_007),
]


def fetched(readers, source, pieces, *, room=False):
    """Bytes of pieces (offset, count) of a file, each in memory of its own between bytes that must stay."""
    sizes = [(-(-(count + source.block) // 4096) + 1) * 4096 for _, count in pieces]
    memory = pread.aligned(sum(sizes), 65536)
    memory[:] = 0xA5
    starts = np.cumsum([0, *sizes]).tolist()
    places = [start + (offset % 4096 if room else 7) for start, (offset, _) in zip(starts, pieces, strict=False)]
    items = [
        Item(source, offset, count, memory.ctypes.data + place, room)
        for place, (offset, count) in zip(places, pieces, strict=True)
    ]
    readers.submit(items, memory).wait()
    if not room:
        touched = np.zeros(len(memory), bool)
        for place, (_, count) in zip(places, pieces, strict=True):
            touched[place : place + count] = True
        assert (memory[~touched] == 0xA5).all()
    return [memory[place : place + count].copy() for place, (_, count) in zip(places, pieces, strict=True)]


def same(found, data, pieces):
    for got, (offset, count) in zip(found, pieces, strict=True):
        np.testing.assert_array_equal(got, data[offset : offset + count])


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_pieces_at_edges_are_the_files_bytes(readers, some_file, direct, inside):
    path, data = some_file()
    source = ReadFile(path, direct=direct)
    assert direct or not source.direct
    same(fetched(readers, source, EDGES, room=inside), data, EDGES)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_pieces(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("pieces")
    size = data.draw(st.integers(1, 40_000))
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    (folder / "f").write_bytes(content.tobytes())
    pieces = data.draw(
        st.lists(
            st.integers(0, size - 1).flatmap(lambda at: st.tuples(st.just(at), st.integers(1, size - at))), max_size=9
        )
    )
    pool = Readers(data.draw(st.sampled_from([1, 2, 5])))
    try:
        inside = data.draw(st.booleans())
        same(fetched(pool, ReadFile(folder / "f"), pieces, room=inside), content, pieces)
    finally:
        pool.close()


def test_long_reads_are_shared_by_threads(readers, some_file, monkeypatch):
    monkeypatch.setattr(room, "PIECE", 8192)
    path, data = some_file()
    source = ReadFile(path)
    pieces = [(5, 290_000), (4096, 8192), (100, 8193)]
    items = room._parts(Item(source, 5, 290_000, 1))
    assert len(items) > 30
    assert all((item.offset % source.block == 0) for item in items[1:])
    for inside in (True, False):
        same(fetched(readers, source, pieces, room=inside), data, pieces)


def test_a_memory_file_system_serves_too(readers):
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("there is none")
    path = shared / f"strata-test-{os.getpid()}"
    data = np.random.default_rng(1).integers(0, 256, 10_001, dtype=np.uint8)
    try:
        path.write_bytes(data.tobytes())
        same(fetched(readers, ReadFile(path), [(0, 10_001), (9_990, 11)]), data, [(0, 10_001), (9_990, 11)])
    finally:
        path.unlink()


def refusing(monkeypatch, *, opening: bool):
    """A file system that refuses direct reads when a file is opened, or when it is read."""
    opened, read, direct = os.open, os.preadv, set()

    def open_(path, flags, *rest):
        if flags & os.O_DIRECT and opening:
            raise OSError(errno.EINVAL, "Invalid argument")
        found = opened(path, flags & ~os.O_DIRECT, *rest)
        if flags & os.O_DIRECT:
            direct.add(found)
        return found

    def preadv(descriptor, buffers, offset):
        if descriptor in direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(file.os, "open", open_)
    monkeypatch.setattr(file.os, "preadv", preadv)


@pytest.mark.parametrize("opening", [True, False])
def test_a_refusal_is_said_once_and_bytes_are_the_same(readers, some_file, monkeypatch, caplog, opening):
    path, data = some_file()
    refusing(monkeypatch, opening=opening)
    with caplog.at_level(logging.WARNING, "strata.memory"):
        source = ReadFile(path)
        same(fetched(readers, source, EDGES), data, EDGES)
        same(fetched(readers, source, EDGES, room=True), data, EDGES)
    assert not source.direct
    assert len(caplog.records) == 1
    assert "cannot be read directly" in caplog.text


def test_larger_blocks_are_found(some_file, monkeypatch):
    path, data = some_file()
    real = os.preadv

    def picky(descriptor, buffers, offset):
        if offset % 16384 or any(len(b) % 16384 for b in buffers):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(file.os, "preadv", picky)
    source = ReadFile(path)
    assert source.block == 16384
    pool = Readers(2, Faulty(lambda _, __, n, at: -errno.EINVAL if n % 16384 or at % 16384 else n).functions)
    same(fetched(pool, source, EDGES, room=True), data, EDGES)
    pool.close()


def test_a_late_refusal_falls_back_and_is_said_once(some_file, caplog):
    path, data = some_file()
    source = ReadFile(path)
    if not source.direct:
        pytest.skip("this file system has no direct reads")
    direct = source.descriptor
    faulty = Faulty(lambda call, fd, n, _: -errno.EINVAL if fd == direct and call > 3 else n)
    pool = Readers(1, faulty.functions)
    with caplog.at_level(logging.WARNING, "strata.memory"):
        for inside in (True, False):
            same(fetched(pool, source, EDGES, room=inside), data, EDGES)
    pool.close()
    assert not source.direct
    assert len(caplog.records) == 1


@pytest.mark.parametrize("direct", [True, False])
def test_short_reads_and_interruptions_leave_no_gap(some_file, direct):
    path, data = some_file()
    source = ReadFile(path, direct=direct)
    begun = source.direct
    small = source.block + 1000 if begun else 1000

    def decide(call, _file, nbytes, _offset):
        return (-errno.EINTR, small, nbytes)[call % 3]

    pool = Readers(2, Faulty(decide).functions)
    for inside in (True, False):
        same(fetched(pool, source, EDGES, room=inside), data, EDGES)
    pool.close()
    assert source.direct == begun


def test_a_file_that_shrank_is_named(readers, some_file):
    path, _ = some_file()
    for direct in (True, False):
        source = ReadFile(path, direct=direct)
        os.truncate(path, 200_000)
        with pytest.raises(StorageError, match=r"some\.bin: ends near byte .* was it changed"):
            fetched(readers, source, [(100, 50), (190_000, 50_000)])
        os.truncate(path, 300_007)


def test_a_failing_disk_is_told(some_file):
    path, _ = some_file()
    pool = Readers(1, Faulty(lambda *_: -errno.EIO).functions)
    with pytest.raises(StorageError, match=r"some\.bin: reading at byte 4 failed: Input/output error"):
        fetched(pool, ReadFile(path), [(4, 5)])
    pool.close()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match=r"none: cannot be opened: No such file"):
        ReadFile(tmp_path / "none")


def test_a_hanging_disk_runs_out_of_time(some_file):
    path, data = some_file()
    gate = threading.Event()
    pool = Readers(1, Faulty(lambda _call, _fd, n, _at: gate.wait() and n).functions)
    target = np.zeros(10, np.uint8)
    ticket = pool.submit([Item(ReadFile(path), 0, 10, target.ctypes.data)], target)
    with pytest.raises(StorageError, match="1 reads took longer than"):
        ticket.wait(0.01)
    assert not ticket.done
    gate.set()
    ticket.wait()
    np.testing.assert_array_equal(target, data[:10])
    pool.close()


def test_what_is_abandoned_is_over(some_file):
    path, _ = some_file()
    gate = threading.Event()
    faulty = Faulty(lambda _call, _fd, n, _at: gate.wait() and n)
    pool = Readers(1, faulty.functions)
    target = np.zeros((50, 10), np.uint8)
    source = ReadFile(path)
    ticket = pool.submit([Item(source, 0, 10, row.ctypes.data) for row in target], target)
    threading.Timer(0.05, gate.set).start()
    ticket.abandon()
    assert ticket.done
    assert faulty.calls < 50
    assert not target[10:].any()
    pool.close()


def test_nothing_is_read_at_once(readers):
    ticket = readers.submit([])
    assert ticket.done
    ticket.wait()


def test_a_forked_process_reads_with_threads_of_its_own(some_file):
    path, data = some_file()
    code = f"""
import os, sys, numpy as np
from pathlib import Path
from strata.memory.reads import Item, ReadFile, Readers
pool, source = Readers(2), ReadFile(Path({str(path)!r}))
def read():
    target = np.zeros(5000, np.uint8)
    pool.submit([Item(source, 99, 5000, target.ctypes.data)], target).wait(60)
    return int(target.sum())
print(read(), flush=True)
child = os.fork()
if not child:
    print(read(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(read(), flush=True)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(int(data[99:5099].sum()))] * 3
