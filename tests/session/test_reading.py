"""Files on their way to memory: the same bytes by every way, few requests at a time, and no thread's error is lost."""

import errno
import os
import threading

import numpy as np
import pytest

from strata.model.memory import Plain
from strata.session import checksum, packing, reading
from strata.session.errors import StoredFileError
from strata.session.pieces import Piece
from strata.session.reading import Buffers, Hands, Reading

HEAD = 8192
PIECE = 32 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(checksum, "PIECE", PIECE)
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


def write(path, payload: bytes, width: int = 1) -> tuple[int, list[Piece]]:
    """A file of a payload; its bytes and pieces."""
    out, pieces = b"h" * HEAD, []
    for first in range(0, len(payload), PIECE):
        some = np.frombuffer(payload[first : first + PIECE], np.uint8)
        piece, stored = packing.pack(some, width, Piece(first, len(some), len(out)), np.empty(PIECE, np.uint8))
        out += stored.tobytes()
        pieces.append(piece)
    path.write_bytes(out)
    return len(out), pieces


def random(length: int, *, like: bool) -> bytes:
    """Bytes; with `like` every second piece is of numbers of two bytes whose top ones are alike."""
    found = np.random.default_rng(length).integers(0, 256, length, np.uint8)
    for first in range(0, length if like else 0, 2 * PIECE):
        found[first : first + PIECE][1::2] &= 3
    return found.tobytes()


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("there", [None, "some", "all"])
@pytest.mark.parametrize("length", [0, 2, 32 << 10, (32 << 10) - 32, (32 << 10) + 2, 200_000, 5 * (32 << 10)])
def test_what_lies_in_a_file_comes(tmp_path, monkeypatch, hands, length, there, width) -> None:
    payload = random(length, like=width > 1)
    size, pieces = write(tmp_path / "file", payload, width)
    assert any(not piece.whole for piece in pieces) == (width > 1 and length > 10_000)
    pages = np.full(-(-size // 4096), there == "all")
    if there == "some":
        pages[::3] = True
    monkeypatch.setattr(reading, "_cached", lambda *_: pages)
    for who in (None, hands):
        memory = Told()
        found = Reading(tmp_path / "file", size, pieces, memory, who).finish()
        assert found.numpy().tobytes() == payload
        assert found.data_ptr() % 4096 == 0
        assert len(memory.readied) == 1


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="the system has no direct reads")
def test_what_the_cache_does_not_have_is_read_past_it_in_whole_blocks(tmp_path, monkeypatch, hands) -> None:
    payload = random(5 * PIECE + 1000, like=True)
    size, pieces = write(tmp_path / "file", payload, 2)
    preadv, direct = os.preadv, []

    def seen(descriptor, buffers, offset):
        if os.O_DIRECT & flags(descriptor):
            address = np.frombuffer(buffers[0], np.uint8).ctypes.data
            direct.append((offset % 4096, address % 4096, len(buffers[0]) % 4096))
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(reading, "_cached", lambda *_: np.zeros(-(-size // 4096), np.bool_))
    monkeypatch.setattr(reading.os, "preadv", seen)
    assert Reading(tmp_path / "file", size, pieces, Plain(), hands).finish().numpy().tobytes() == payload
    assert len(direct) >= sum(-(-piece.stored // 8192) for piece in pieces)
    assert set(direct) == {(0, 0, 0)}


@pytest.mark.parametrize("width", [1, 2])
def test_a_piece_that_is_not_what_was_written_is_noticed(tmp_path, hands, width) -> None:
    size, pieces = write(tmp_path / "file", random(200_000, like=width > 1), width)
    whole = (tmp_path / "file").read_bytes()
    for piece in pieces:
        for at in (piece.place, piece.place + piece.stored - 1):
            (tmp_path / "file").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            for who in (None, hands):
                with pytest.raises(StoredFileError, match="damaged"):
                    Reading(tmp_path / "file", size, pieces, Plain(), who).finish()
    assert_all_back(hands)


def assert_all_back(hands) -> None:
    """No buffer is lent, and none kept."""
    hands.readers.shutdown()
    hands.summers.shutdown()
    assert (hands.buffers._lent, hands.buffers._free) == (0, [])
    for _ in range(reading.BUFFERS):
        assert hands.buffers._room.acquire(blocking=False)


def test_buffers_are_used_again_and_bounded() -> None:
    buffers = Buffers(2)
    one, other = buffers.take(), buffers.take()
    assert len(one) == PIECE
    assert one.ctypes.data % 4096 == 0
    late = threading.Event()
    third = []
    thread = threading.Thread(target=lambda: (third.append(buffers.take()), late.set()))
    thread.start()
    assert not late.wait(0.05), "there are two"
    buffers.give(one)
    assert late.wait(20)
    thread.join()
    assert third[0] is one
    buffers.give(third[0])
    assert len(buffers._free) == 1
    buffers.give(other)
    assert buffers._free == [], "nothing is kept while nothing is read"


def test_few_packed_pieces_are_held_at_once(tmp_path, monkeypatch, hands) -> None:
    lock, lent, most = threading.Lock(), 0, 0
    take, give = hands.buffers.take, hands.buffers.give

    def taking():
        nonlocal lent, most
        found = take()
        with lock:
            lent += 1
            most = max(most, lent)
        return found

    def giving(buffer):
        nonlocal lent
        with lock:
            lent -= 1
        give(buffer)

    monkeypatch.setattr(hands.buffers, "take", taking)
    monkeypatch.setattr(hands.buffers, "give", giving)
    unpack = reading.unpack
    monkeypatch.setattr(reading, "unpack", lambda *a: (threading.Event().wait(0.002), unpack(*a)))
    payload = bytes(range(256)) * 128 * 30
    size, pieces = write(tmp_path / "file", payload, 2)
    assert Reading(tmp_path / "file", size, pieces, Plain(), hands).finish().numpy().tobytes() == payload
    assert 1 < most <= reading.BUFFERS < len(pieces)
    assert_all_back(hands)


def test_the_system_says_what_its_cache_has(tmp_path) -> None:
    size, _ = write(tmp_path / "file", bytes(100_000))
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
    written = [write(tmp_path / f"{i}", bytes([i]) * 100_000, 1 + i % 2) for i in range(3)]
    files = [Reading(tmp_path / f"{i}", size, pieces, Plain(), hands) for i, (size, pieces) in enumerate(written)]
    for i, file in enumerate(files):
        assert file.finish().numpy().tobytes() == bytes([i]) * 100_000
    assert most == reading.READERS


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_where_direct_reads_are_refused_the_cache_is_asked(tmp_path, monkeypatch, hands, number) -> None:
    (size, pieces), preadv = write(tmp_path / "file", bytes(range(256)) * 500, 2), os.preadv
    direct = []

    def refusing(descriptor, buffers, offset):
        if os.O_DIRECT & flags(descriptor):
            direct.append(offset)
            raise OSError(number, "no")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(reading, "_cached", lambda *_: np.zeros(-(-size // 4096), np.bool_))
    monkeypatch.setattr(reading.os, "preadv", refusing)
    found = Reading(tmp_path / "file", size, pieces, Plain(), hands).finish()
    assert found.numpy().tobytes() == bytes(range(256)) * 500
    assert direct or not hasattr(os, "O_DIRECT")


def flags(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


@pytest.mark.parametrize("width", [1, 2])
def test_an_error_of_a_thread_is_told(tmp_path, monkeypatch, hands, width) -> None:
    size, pieces = write(tmp_path / "file", bytes(100_000), width)
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EOFError):
        Reading(tmp_path / "file", size, pieces, Plain(), hands).finish()

    def failing(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(reading.os, "preadv", failing)
    with pytest.raises(OSError, match="Input/output"):
        Reading(tmp_path / "file", size, pieces, Plain(), hands).finish()
    assert_all_back(hands)
