"""Files on their way to memory: the same bytes by every way, few requests at a time, and no thread's error is lost."""

import errno
import os
import threading
from hashlib import blake2b

import numpy as np
import pytest

from strata.model.memory import Plain
from strata.session import checksum, reading
from strata.session.reading import Hands, Reading

HEAD = 8192


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(checksum, "PIECE", 32 << 10)
    monkeypatch.setattr(reading, "REQUEST", 8 << 10)


@pytest.fixture
def hands():
    found = Hands()
    yield found
    found.close()


class Told(Plain):
    def __init__(self):
        self.readied = []

    def ready(self, memory):
        self.readied.append(memory)


def write(path, payload: bytes):
    path.write_bytes(b"h" * HEAD + payload + b"s" * 32)
    return HEAD + len(payload) + 32


def forget(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.mark.parametrize("there", [None, "some", "all"])
@pytest.mark.parametrize("length", [0, 1, 32 << 10, (32 << 10) - 32, (32 << 10) + 1, 200_000, 5 * (32 << 10)])
def test_what_lies_in_a_file_comes(tmp_path, monkeypatch, hands, length, there) -> None:
    payload = np.random.default_rng(length).integers(0, 256, length, np.uint8).tobytes()
    size = write(tmp_path / "file", payload)
    pages = np.full(-(-size // 4096), there == "all")
    if there == "some":
        pages[::3] = True
    monkeypatch.setattr(reading, "_cached", lambda *_: pages)
    for who in (None, hands):
        memory = Told()
        found, sums, seal = Reading(tmp_path / "file", HEAD, size, memory, who).finish()
        assert found.numpy().tobytes() == payload
        assert seal == b"s" * 32
        cuts = range(0, length, 32 << 10)
        assert sums == [blake2b(payload[at : at + (32 << 10)], digest_size=32).digest() for at in cuts]
        assert found.data_ptr() % 4096 == 0
        assert len(memory.readied) == 1


def test_the_system_says_what_its_cache_has(tmp_path) -> None:
    size = write(tmp_path / "file", bytes(100_000))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        pages = reading._cached(descriptor, size)
        assert pages is not None
        assert len(pages) == -(-size // 4096)
        assert pages.all()
        assert reading._cached(descriptor, size << 20) is None, "it is not so long"
    finally:
        os.close(descriptor)


def test_few_requests_are_under_way_at_once_whatever_many_files(tmp_path, monkeypatch, hands) -> None:
    lock, now, most, preadv = threading.Lock(), 0, 0, os.preadv

    def slow(descriptor, buffers, offset):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(reading.os, "preadv", slow)
    sizes = [write(tmp_path / f"{i}", bytes([i]) * 100_000) for i in range(3)]
    files = [Reading(tmp_path / f"{i}", HEAD, size, Plain(), hands) for i, size in enumerate(sizes)]
    for i, file in enumerate(files):
        assert file.finish()[0].numpy().tobytes() == bytes([i]) * 100_000
    assert most == reading.READERS


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_where_direct_reads_are_refused_the_cache_is_asked(tmp_path, monkeypatch, hands, number) -> None:
    size, preadv = write(tmp_path / "file", bytes(range(256)) * 500), os.preadv
    direct = []

    def refusing(descriptor, buffers, offset):
        if os.O_DIRECT & flags(descriptor):
            direct.append(offset)
            raise OSError(number, "no")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(reading, "_cached", lambda *_: np.zeros(-(-size // 4096), np.bool_))
    monkeypatch.setattr(reading.os, "preadv", refusing)
    found, _, _ = Reading(tmp_path / "file", HEAD, size, Plain(), hands).finish()
    assert found.numpy().tobytes() == bytes(range(256)) * 500
    assert direct or not hasattr(os, "O_DIRECT")


def flags(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


def test_an_error_of_a_thread_is_told(tmp_path, monkeypatch, hands) -> None:
    size = write(tmp_path / "file", bytes(100_000))
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[:60_000])
    with pytest.raises(EOFError):
        Reading(tmp_path / "file", HEAD, size, Plain(), hands).finish()

    def failing(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(reading.os, "preadv", failing)
    with pytest.raises(OSError, match="Input/output"):
        Reading(tmp_path / "file", HEAD, size, Plain(), hands).finish()
