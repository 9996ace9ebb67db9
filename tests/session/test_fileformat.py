"""A file is what was written, to the last bit, or it is refused with a reason."""

import io
import struct
from dataclasses import replace
from hashlib import blake2b

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.session import reading
from strata.session.errors import StoredFileError
from strata.session.fileformat import Header, describe, front, read, read_header, size_of, write

TENSORS = {
    "layer.3.k": torch.arange(24.0).reshape(3, 2, 4),
    "positions": torch.tensor([[1, 2, 3], [-4, 5, 1 << 60], [0, 0, 0]]),
    "none": torch.empty(0, 16),
    "half": torch.tensor([1.5, float("inf"), -0.0], dtype=torch.bfloat16),
}
HEADER = Header("f" * 32, "rows", 'säl"t', (5, ~7, 300), 1, 4, marked=True, tensors=describe(TENSORS))


def contents(header=HEADER, tensors=None) -> bytes:
    out = io.BytesIO()
    size = write(out, header, TENSORS if tensors is None else tensors)
    assert size == len(out.getvalue())
    return out.getvalue()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(contents())
    return path


def test_what_is_written_is_read_again(path) -> None:
    header, digest, tensors = read(path)
    assert header == HEADER
    assert read_header(path) == (HEADER, digest)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert torch.equal(tensors[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))
    assert path.stat().st_size == size_of(HEADER)


def places(whole: bytes) -> list[int]:
    """All of a file but most of the blanks that fill its header."""
    return [at for at in range(len(whole)) if whole[at - 1 : at + 2] != b"   " or at % 97 == 0]


def test_a_payload_begins_where_direct_reads_can() -> None:
    for salt in ("", "x" * 4000, "x" * 5000):
        assert (len(front(replace(HEADER, salt=salt))) + 12 + 32) % 4096 == 0, "with the table of one piece and its sum"


def test_a_file_cut_off_anywhere_is_refused(path) -> None:
    whole = path.read_bytes()
    for length in places(whole):
        path.write_bytes(whole[:length])
        for reader in (read, read_header):
            with pytest.raises(StoredFileError, match="cut off"):
                reader(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(StoredFileError, match="should have"):
        read(path)


def test_a_bit_flipped_anywhere_is_noticed(path) -> None:
    whole = path.read_bytes()
    for at in places(whole):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(StoredFileError):
            read(path)


@given(st.lists(st.tuples(st.integers(0, 9000), st.binary(min_size=1, max_size=64)), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_bytes_overwritten_anywhere_are_noticed(tmp_path_factory, changes) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    whole = contents()
    damaged = bytearray(whole)
    for at, new in changes:
        first = at % len(whole)
        damaged[first : first + len(new)] = new[: len(whole) - first]
    path.write_bytes(damaged)
    if damaged == whole:
        read(path)
        return
    with pytest.raises(StoredFileError):
        read(path)


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_what_is_no_such_file_is_refused(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    path.write_bytes(data)
    with pytest.raises(StoredFileError):
        read(path)


def test_another_version_is_named(path) -> None:
    whole = bytearray(path.read_bytes())
    whole[8:12] = struct.pack("<I", 1)
    path.write_bytes(whole)
    with pytest.raises(StoredFileError, match="format version 1; this program reads version 6"):
        read_header(path)


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{}",
        b"\xff",
        b'{"symbols": [1], "tensors": [["a", "float99", [1]]]}',
        b'{"symbols": "x", "tensors": []}',
        b'{"symbols": [1], "tensors": [], "more": 1}',
        b'{"fingerprint":"","kind":"rows","salt":"","symbols":[1],"start":"x","ratio":1,"marked":0,"tensors":[]}',
        b'{"symbols": [Infinity], "tensors": []}',
        b"[" * 100_000,
    ],
)
def test_a_sound_checksum_does_not_make_sense_of_nonsense(path, text) -> None:
    begin = struct.pack("<8sIIQ", b"StrataKV", 6, len(text), 0) + text
    begin += blake2b(begin, digest_size=32).digest()
    path.write_bytes(begin + blake2b(begin[-32:], digest_size=32).digest())
    with pytest.raises(StoredFileError, match="not understood"):
        read(path)


@pytest.mark.parametrize(
    "header",
    [
        Header("f", "rows", "", (1, 2), 2, 4, marked=False, tensors=()),
        Header("f", "rows", "", (1, 2), -1, 4, marked=False, tensors=()),
        Header("f", "checkpoint", "", (1, 2), 1, 0, marked=False, tensors=()),
        Header("f", "checkpoint", "", (), 0, 0, marked=False, tensors=()),
        Header("f", "other", "", (1, 2), 0, 4, marked=False, tensors=()),
        Header("f", "rows", "", (1, 2), 0, 4, marked=False, tensors=(("a", "uint8", (-8, -8)),)),
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_refused(path, header) -> None:
    path.write_bytes(contents(header, {"a": torch.zeros(64, dtype=torch.uint8)}))
    with pytest.raises(StoredFileError, match="contradicts itself"):
        read_header(path)


def test_a_file_that_becomes_shorter_while_it_is_read(path, monkeypatch) -> None:
    monkeypatch.setattr(reading.os, "preadv", lambda *_: 0)
    with pytest.raises(StoredFileError, match="became shorter"):
        read(path)
