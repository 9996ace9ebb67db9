"""Files whose pieces are packed: the same bytes come back, or a reason, whatever was written or done to a file."""

import binascii
import contextlib
import io
import logging
import os
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strata.model.memory import PLAIN
from strata.session import checksum, packing, reading
from strata.session.errors import StoredFileError
from strata.session.fileformat import DTYPES, Coming, Header, describe, read, read_header, size_of, write
from strata.session.pieces import ENTRY, Piece, pieces_of
from strata.session.reading import Hands
from strata.session.zstd import zstd

PIECE = 32 << 10
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(autouse=True, scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "PIECE", PIECE)
        patch.setattr(packing, "PART", 3000)  # several a piece, the last one shorter
        patch.setattr(reading, "REQUEST", 8 << 10)
        yield


@pytest.fixture(scope="module")
def hands():
    found = Hands()
    yield found
    found.close()


def normal(count: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)


def noise(count: int, seed: int = 2) -> torch.Tensor:
    found = torch.zeros(count, dtype=torch.uint8)
    found.numpy()[:] = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    return found


# Pieces of keys (two and a half), of codes (as they are), of states, and of a bit of everything.
TENSORS = {
    "k": normal(5 * PIECE // 4, torch.bfloat16),
    "codes": noise(2 * PIECE),
    "s": normal(3 * PIECE // 8, torch.float32),
    "half": normal(PIECE // 2, torch.float16),
    "positions": torch.arange(100),
}


def header_of(tensors) -> Header:
    return Header("f" * 32, "rows", "", (5, 6, 7), 1, 4, marked=True, tensors=describe(tensors))


def contents(tensors) -> bytes:
    out = io.BytesIO()
    size = write(out, header_of(tensors), tensors)
    assert size == len(out.getvalue()) <= size_of(header_of(tensors))
    return out.getvalue()


@pytest.fixture(scope="module")
def whole() -> bytes:
    return contents(TENSORS)


@pytest.fixture
def path(tmp_path, whole):
    path = tmp_path / "file"
    path.write_bytes(whole)
    return path


def same(found, tensors) -> bool:
    assert found.keys() == tensors.keys()
    return all(
        found[n].dtype == t.dtype and found[n].shape == t.shape and raw(found[n]) == raw(t) for n, t in tensors.items()
    )


def raw(tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def before(whole: bytes) -> int:
    """Bytes before the table."""
    return 24 + struct.unpack("<I", whole[12:16])[0] + 32


def entries_of(whole: bytes) -> list[tuple[int, int, int]]:
    count = -(-struct.unpack("<Q", whole[16:24])[0] // PIECE)
    return list(struct.iter_unpack("<III", whole[before(whole) :][: 12 * count]))


def with_entries(whole: bytes, entries) -> bytes:
    """The file with another table, whose checksum is sound."""
    start = before(whole)
    table = b"".join(struct.pack("<III", *entry) for entry in entries)
    sealed = table + blake2b(whole[start - 32 : start] + table, digest_size=32).digest()
    return whole[:start] + sealed + whole[start + len(sealed) :]


def places(whole: bytes) -> list[tuple[int, int]]:
    """First byte of each piece in a file, and of what follows it."""
    entries = entries_of(whole)
    payload, at = struct.unpack("<Q", whole[16:24])[0], before(whole) + 12 * len(entries) + 32
    found = []
    for i, (width, packed, _) in enumerate(entries):
        size = min(PIECE, payload - i * PIECE)
        stored = size if width == 1 else -(-(size - size // width + packed) // 4096) * 4096
        found.append((at, at + stored))
        at += stored
    assert at == len(whole)
    return found


def test_a_file_by_hand(whole) -> None:
    """Read as the pages say, with zstd's function for all at once, hashlib and binascii."""
    start, entries = before(whole), entries_of(whole)
    end = start + 12 * len(entries)
    assert whole[end : end + 32] == blake2b(whole[start - 32 : end], digest_size=32).digest()
    size, payload = struct.unpack("<Q", whole[16:24])[0], b""
    for (first, behind), (width, packed, crc) in zip(places(whole), entries, strict=True):
        assert first % 4096 == 0
        piece, frame = whole[first:behind], b""
        if width > 1:
            numbers = min(PIECE, size - len(payload)) // width
            frame = piece[(width - 1) * numbers :]
            planes = [piece[i * numbers : (i + 1) * numbers] for i in range(width - 1)]
            piece = b"".join(bytes(number) for number in zip(*planes, zstd.decompress(frame[:packed]), strict=True))
            assert not any(frame[packed:])
            assert frame[:4] == b"\x28\xb5\x2f\xfd"
            assert frame[4] & 4, "it has a checksum, which decompress() looked at"
        assert crc == binascii.crc32(whole[first:behind])
        payload += piece
    assert payload == b"".join(raw(t) + bytes(-t.nbytes % 64) for t in TENSORS.values())
    assert {width for width, _, _ in entries} == {1, 2, 4}


def test_pieces_that_are_not_worth_it_are_as_they_are(tmp_path) -> None:
    for tensors in (
        {"codes": noise(3 * PIECE)},
        {"n": torch.arange(PIECE)},
        {"k": noise(2 * PIECE).view(torch.bfloat16)},
    ):
        found = contents(tensors)
        assert all(entry[:2] == (1, 0) for entry in entries_of(found))
        assert len(found) == size_of(header_of(tensors))
        (tmp_path / "file").write_bytes(found)
        assert same(read(tmp_path / "file")[2], tensors)
    tensors = {"k": normal(20 * PIECE, torch.bfloat16)}
    assert len(contents(tensors)) < 0.8 * size_of(header_of(tensors))


def test_a_tensor_without_elements_may_have_any_strides(tmp_path) -> None:
    none = torch.from_numpy(np.empty(0, np.float32))
    assert none.stride() == (0,), "as NumPy has it; torch does not take bytes of such a tensor"
    tensors = {"none": none, "k": normal(PIECE, torch.bfloat16)}
    (tmp_path / "file").write_bytes(contents(tensors))
    assert same(read(tmp_path / "file")[2], tensors)


KINDS = {
    "normal": normal,
    "zeros": lambda count, dtype, _: torch.zeros(count, dtype=dtype),
    "random": lambda count, dtype, seed: noise(count * dtype.itemsize, seed).view(dtype),
    "alike": lambda count, dtype, seed: torch.full((count,), seed % 100, dtype=dtype),
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(DTYPES)),
            st.integers(0, 3 * PIECE) | st.sampled_from([PIECE // 4, PIECE // 2, PIECE // 2 + 1]),
            st.sampled_from(sorted(KINDS)),
        ),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
@example([("bfloat16", PIECE // 2, "normal"), ("bfloat16", 0, "random")])
@example([("float32", 1, "normal"), ("bfloat16", PIECE, "normal"), ("uint8", 3, "random")])
def test_whatever_was_written_comes_back(tmp_path_factory, hands, parts) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    tensors = {f"t{i}": KINDS[kind](count, DTYPES[name], i) for i, (name, count, kind) in enumerate(parts)}
    path.write_bytes(contents(tensors))
    assert read_header(path)[0] == header_of(tensors)
    assert same(read(path)[2], tensors)
    assert same(Coming(path, PLAIN, hands).tensors(), tensors)


def refused(path, hands) -> str:
    """Why a file is refused, in every way of reading it."""
    with pytest.raises(StoredFileError) as one:
        read(path)
    with pytest.raises(StoredFileError):
        Coming(path, PLAIN, hands).tensors()
    return str(one.value)


def looked_at(whole: bytes) -> list[int]:
    """Bytes of the beginning, the table, both ends of each piece, each frame, and some of all others."""
    entries, found = entries_of(whole), set(range(0, len(whole), 499))
    found |= {*range(30), *range(before(whole) - 33, before(whole) + 12 * len(entries) + 32)}
    for (first, behind), (width, packed, _) in zip(places(whole), entries, strict=True):
        found |= {first, first + 1, behind - 1, behind - 4000}
        if width > 1:
            rest = PIECE - PIECE // width
            found |= {
                *range(first + rest - 2, first + rest + 20),
                *range(first + rest + packed - 20, first + rest + packed + 3),
            }
    return sorted(at for at in found if 0 <= at < len(whole))


def test_a_bit_flipped_anywhere_is_noticed(path, whole, hands) -> None:
    for at in looked_at(whole):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert refused(path, hands)


def test_a_file_cut_off_anywhere_is_refused_at_the_start(path, whole) -> None:
    for length in (*looked_at(whole), len(whole) - 1):
        path.write_bytes(whole[:length])
        for reader in (read, read_header):
            with pytest.raises(StoredFileError, match="cut off"):
                reader(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(StoredFileError, match="should have"):
        read_header(path)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_bytes_overwritten_anywhere_are_noticed(tmp_path_factory, whole, hands, data) -> None:
    path, damaged = tmp_path_factory.mktemp("files") / "file", bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1) | st.sampled_from(looked_at(whole)))
        new = data.draw(st.binary(min_size=1, max_size=64))[: len(whole) - at]
        damaged[at : at + len(new)] = new
    path.write_bytes(damaged)
    if damaged == whole:
        assert same(read(path)[2], TENSORS)
    else:
        assert refused(path, hands)


def test_a_file_that_becomes_shorter_while_it_is_read(path, hands, monkeypatch) -> None:
    monkeypatch.setattr(reading.os, "preadv", lambda *_: 0)
    assert "became shorter" in refused(path, hands)


def test_pieces_that_changed_places_are_noticed(path, whole, hands) -> None:
    (first, second), *_ = places(whole)
    length = second - first
    assert places(whole)[1][1] - second == length
    path.write_bytes(whole[:first] + whole[second : second + length] + whole[first:second] + whole[second + length :])
    assert refused(path, hands)


WORDS = st.integers(0, 2**32 - 1) | st.integers(0, PIECE) | st.sampled_from([0, 1, 2, 3, 4, 8])


@given(which=st.integers(0, 20), width=WORDS, packed=WORDS, several=st.booleans())
@settings(max_examples=200, deadline=None)
@example(which=0, width=2, packed=2**32 - 1, several=True)
@example(which=0, width=0, packed=0, several=False)
@example(which=0, width=1, packed=5, several=False)
@example(which=0, width=4, packed=0, several=False)
def test_a_sound_checksum_does_not_make_sense_of_an_absurd_table(
    tmp_path_factory, whole, hands, which, width, packed, several
) -> None:
    path, entries = tmp_path_factory.mktemp("files") / "file", entries_of(whole)
    changed = range(len(entries)) if several else [which % len(entries)]
    new = [(width, packed, entry[2]) if i in changed else entry for i, entry in enumerate(entries)]
    path.write_bytes(with_entries(whole, new))
    if new == entries:
        assert same(read(path)[2], TENSORS)
    else:
        assert refused(path, hands)


def test_no_table_makes_a_piece_longer_than_it_is() -> None:
    for width in (1, 2, 4):
        for packed in (0, 1, PIECE // 8, PIECE // width - 1, PIECE // width, 2**32 - 1):
            entry = ENTRY.pack(width, packed, 0)
            try:
                (piece,) = pieces_of(entry, PIECE, 4096)
            except StoredFileError:
                continue
            assert piece.stored <= piece.size == PIECE
    with pytest.raises(StoredFileError, match="there is no such piece"):
        pieces_of(ENTRY.pack(4, 1, 0), 66, 4096)


def framed(contents: bytes, *, checked: bool = True, **options: int) -> bytes:
    """A frame."""
    chosen = {zstd.CompressionParameter[name]: value for name, value in options.items()}
    return zstd.compress(contents, options=chosen | {zstd.CompressionParameter.checksum_flag: int(checked)})


def piece_of(frame: bytes, sum_of: bytes | None = None) -> tuple[Piece, np.ndarray]:
    """A piece of zeros but for a frame, and what the file has of it; its sum fits, or is that of other bytes."""
    piece = Piece(0, PIECE, 4096, 2, len(frame))
    stored = np.zeros(piece.stored, np.uint8)
    stored[piece.rest : piece.rest + len(frame)] = np.frombuffer(frame, np.uint8)
    return replace(piece, sum=binascii.crc32(stored if sum_of is None else sum_of)), stored


def test_a_frame_that_holds_too_much_takes_no_memory() -> None:
    for size in (PIECE // 2 + 1, 64 << 20):
        piece, stored = piece_of(framed(bytes(size), window_log=packing.WINDOW))
        tracemalloc.start()
        try:
            with pytest.raises(StoredFileError, match="does not unpack to 16384 bytes"):
                packing.unpack(piece, stored, np.empty(PIECE, np.uint8))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def frame_of_a_window(bits: int) -> bytes:
    """That would be unpacked, but with so much memory."""
    options = {zstd.CompressionParameter.window_log: bits, zstd.CompressionParameter.checksum_flag: 1}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(bytes(PIECE // 2), packer.FLUSH_BLOCK) + packer.flush()


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "is no frame with a checksum"),
        (b"no frame", "is no frame with a checksum"),
        (b"\x28\xb5\x2f\xfd", "is no frame with a checksum"),
        (b"\x28\xb5\x2f\xfd\x04", "does not unpack to 16384 bytes"),
        (framed(bytes(PIECE // 2)) + b"\0", "does not unpack to 16384 bytes"),
        (framed(bytes(PIECE // 2))[:-1], "does not unpack to 16384 bytes"),
        (framed(bytes(PIECE // 2 - 1)), "does not unpack to 16384 bytes"),
        (2 * framed(bytes(PIECE // 4)), "does not unpack to 16384 bytes"),
        (b"\x50\x2a\x4d\x18\x04\0\0\0none", "is no frame with a checksum"),  # one that is to be skipped
        (frame_of_a_window(27), "cannot be unpacked"),
        (frame_of_a_window(18), "cannot be unpacked"),
        (framed(bytes(PIECE // 2), checked=False), "is no frame with a checksum"),
        (framed(bytes(PIECE // 2), checked=False) + b"sums", "is no frame with a checksum"),
    ],
    ids=range(13),
)
def test_what_is_no_frame_of_the_top_bytes_is_refused(frame, why) -> None:
    piece, stored = piece_of(frame)
    with pytest.raises(StoredFileError, match=why):
        packing.unpack(piece, stored, np.empty(PIECE, np.uint8))


def test_a_sound_sum_of_a_frame_that_unpacks_to_something_else_is_not_enough() -> None:
    """What is behind the sum, a processor that unpacks wrongly for example, is for the frame's own checksum to find."""
    top = np.abs(normal(PIECE // 2, torch.bfloat16).view(torch.uint8).numpy()[1::2]).tobytes()
    frame, wrong = framed(top, compression_level=1, hash_log=6), 0
    for at in range(5, len(frame), 7):
        damaged = bytearray(frame)
        damaged[at] ^= 1 << at % 8
        piece, stored = piece_of(bytes(damaged))
        with pytest.raises(StoredFileError, match="unpack"):
            packing.unpack(piece, stored, np.empty(PIECE, np.uint8))
        damaged[4] &= ~4  # and without being looked at
        with contextlib.suppress(zstd.ZstdError):
            wrong += zstd.decompress(damaged[:-4]) != top
    assert wrong > 100, "many of these frames are sound but for that"


def test_nothing_is_unpacked_before_its_sum_was_compared(monkeypatch) -> None:
    piece, stored = piece_of(framed(bytes(PIECE // 2)), b"other bytes")
    monkeypatch.setattr(packing, "_unpacked", lambda *_: pytest.fail("it was unpacked"))
    contents = np.full(PIECE, 7, np.uint8)
    with pytest.raises(StoredFileError, match="its checksum does not fit"):
        packing.unpack(piece, stored, contents)
    assert (contents == 7).all()


def test_without_zstd_pieces_are_written_as_they_are_and_packed_ones_are_a_miss(
    path, hands, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(packing, "zstd", None)
    packing._tell.cache_clear()
    with caplog.at_level(logging.WARNING):
        unpacked = contents(TENSORS)
        contents(TENSORS)
    assert caplog.text.count("this Python has no zstd; install backports.zstd") == 1
    assert len(unpacked) == size_of(header_of(TENSORS))
    assert "it is packed, and this Python has no zstd; install backports.zstd" in refused(path, hands)
    with pytest.raises(StoredFileError, match="no zstd"):
        read_header(path)
    path.write_bytes(unpacked)
    assert same(read(path)[2], TENSORS)
    monkeypatch.undo()
    assert same(read(path)[2], TENSORS), "and with it they can be read, too"


def test_all_can_be_imported_without_zstd() -> None:
    code = """
        import sys
        sys.modules |= {"backports": None, "backports.zstd": None, "compression.zstd": None}
        from strata.session import packing, scheduler
        print(packing.available())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
