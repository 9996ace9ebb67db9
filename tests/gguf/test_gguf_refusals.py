"""Unsound files: each is refused before memory is taken, naming file, key or tensor, found and expected.

Public faults group M, cases M01 and M16; gguf-tensors spec section 1.
"""

import os
import re
import struct
import time
import tracemalloc

import pytest

from strata.errors import GgufError
from strata.gguf import open_model
from support.ggufs import F32, Q2_0, Q8_0, Tensor, build, lie, sample, tiny_model

SAMPLE = sample()
EXTREMES = [
    0,
    1,
    2,
    7,
    255,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 2,
    2**64 - 1,
]


def refused(tmp_path, data: bytes, *words: str) -> str:
    """Opening and decoding all metadata must fail; the message has the file and all ``words`` (regular expressions)."""
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError) as caught:
        dict(open_model(path).metadata)
    message = str(caught.value)
    for word in ("model.gguf", *words):
        assert re.search(word, message), f"{word!r} not in: {message}"
    return message


def open_model_of(tmp_path, data: bytes):
    path = tmp_path / "sound.gguf"
    path.write_bytes(data)
    return open_model(path)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, ["the file is empty", "24 bytes"]),
        (1, ["has 1 bytes", "24"]),
        (4, ["has 4 bytes", "24"]),
        (23, ["has 23 bytes", "24"]),
        (100, ["number of metadata keys: 27 are claimed", "76 bytes that follow", "truncated"]),
        (800, ["'many.f64'", "ends at byte 800", "truncated"]),
    ],
    ids=lambda part: str(part)[:10],
)
def test_a_file_cut_inside_the_header(tmp_path, size, words):
    refused(tmp_path, SAMPLE.data[:size], *words)


@pytest.mark.parametrize("cut", ["half", "one byte"])
def test_a_file_cut_inside_the_data_names_tensor_needed_and_actual_size(tmp_path, cut):
    path = tmp_path / "model.gguf"
    tiny_model(path)
    model = open_model(path)
    last = max(model.tensors.values(), key=lambda info: info.offset)
    end = last.offset + last.nbytes
    assert path.stat().st_size == end  # 64 F32: no padding, so every byte counts
    size = end // 2 if cut == "half" else end - 1
    cut_at = next(info for info in model.tensors.values() if info.offset + info.nbytes > size)
    refused(
        tmp_path,
        path.read_bytes()[:size],
        f"tensor {cut_at.name!r}",
        f"needs bytes {cut_at.offset} to {cut_at.offset + cut_at.nbytes}",
        f"file has {size} bytes",
        f"together need {end}",
    )


def test_a_file_cut_anywhere_is_refused(tmp_path):
    """Every length, not a sample: the end of the last tensor's data is the first that suffices."""
    tensors = [Tensor("a", [8], F32, bytes(32)), Tensor("b", [32, 2], Q8_0, bytes(68))]
    data = build([("k", "string[]", ["x", "yz"]), ("n", "u64", 5)], tensors, pad_last=False).data
    path = tmp_path / "model.gguf"
    for size in range(len(data)):
        path.unlink(missing_ok=True)
        path.write_bytes(data[:size])
        with pytest.raises(GgufError, match=r"model\.gguf"):
            open_model(path)
    path.unlink()
    path.write_bytes(data)
    open_model(path)


@pytest.mark.parametrize(
    ("magic", "version", "words"),
    [
        (b"GGML", 3, ["not a GGUF file", "GGML", "GGUF"]),
        (b"PK\x03\x04", 3, ["not a GGUF file"]),
        (b"GGUF", 1, ["version 1", "expected version 3"]),
        (b"GGUF", 2, ["version 2", "expected version 3"]),
        (b"GGUF", 4, ["version 4", "expected version 3"]),
        (b"GGUF", 3 << 24, ["big-endian"]),
    ],
    ids=str,
)
def test_other_containers_and_versions(tmp_path, magic, version, words):
    refused(tmp_path, build([], magic=magic, version=version).data, *words)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("number of tensors", 2**64 - 1, ["number of tensors: 18446744073709551615 are claimed", "at most"]),
        ("number of tensors", 5, ["tensor 4|tensor ''"]),
        ("number of keys", 2**63, ["number of metadata keys: 9223372036854775808 are claimed", "at most"]),
        ("length of key 'general.name'", 2**63, ["metadata key 1", "needs 9223372036854775808 bytes"]),
        ("length of string of 'general.name'", 2**40, ["'general.name'", "needs 1099511627776 bytes"]),
        ("count of 'many.u64'", 2**61, ["'many.u64'", rf"u64\[{2**61}\]", f"needs {2**64} bytes"]),
        ("count of 'many.string'", 2**62, ["'many.string'", f"{2**62} are claimed", "at most"]),
        ("count of 'many.string'", 100, ["'many.string', element"]),
        ("element type of 'one.u8'", 13, ["'one.u8'", "unknown value type 13", "0 to 12"]),
        ("element type of 'many.u8'", 99, ["'many.u8'", "unknown value type 99"]),
        ("element type of 'many.u8'", 9, ["'many.u8'", "array of arrays"]),
        ("dimensions of 'norm.weight'", 0, ["'norm.weight'", "0 dimensions", "1 to 4"]),
        ("dimensions of 'norm.weight'", 5, ["'norm.weight'", "5 dimensions", "1 to 4"]),
        ("dimensions of 'norm.weight'", 2**32 - 1, ["'norm.weight'", "4294967295 dimensions"]),
        ("ne[1] of 'matrix.weight'", 0, ["'matrix.weight'", r"\[3, 0\]", "zero"]),
        ("ne[1] of 'matrix.weight'", 2**63, ["'matrix.weight'", r"\[9223372036854775808, 3\]", "needs bytes"]),
        # The product of the lengths is 0 in 64-bit arithmetic.
        ("ne[2] of 'experts.weight'", 2**62, ["'experts.weight'", "needs bytes"]),
        ("ne[0] of 'experts.weight'", 33, ["'experts.weight'", "Q8_0", "33", "32"]),
        ("ne[0] of 'two.weight'", 65, ["'two.weight'", "42|Q2_0", "65"]),
        ("type of tensor 'norm.weight'", 4, ["'norm.weight'", "4"]),
        ("type of tensor 'norm.weight'", 2**32 - 1, ["'norm.weight'", "4294967295"]),
        ("offset of 'matrix.weight'", 33, ["'matrix.weight'", "offset 33", "alignment 32"]),
        ("offset of 'matrix.weight'", 2**64 - 32, ["'matrix.weight'", "needs bytes", "truncated or damaged"]),
        ("offset of 'matrix.weight'", 2**40, ["'matrix.weight'", "needs bytes"]),
        ("offset of 'experts.weight'", 32, ["'experts.weight'", "'matrix.weight'", "inside tensor"]),
        ("offset of 'two.weight'", 64, ["'experts.weight'", "'two.weight'"]),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_lying_field(tmp_path, field, value, words):
    refused(tmp_path, lie(SAMPLE, field, value), *words)


def test_the_last_string_of_a_file_may_not_reach_past_its_end(tmp_path):
    built = build([("k", "string[]", ["a", "bc"])], pad_last=False)
    data = bytes(built.data)
    refused(tmp_path, data[:-10] + struct.pack("<Q", 3) + data[-2:], "'k', element 1,", "needs 3 bytes", "truncated")


def test_the_lies_above_were_about_a_sound_file(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(SAMPLE.data)
    assert len(open_model(path).tensors) == 4


def test_every_number_of_the_header_may_lie(tmp_path):
    """Each field times each extreme value: opened or refused, within a second and with memory in proportion."""
    data, outcomes = bytes(SAMPLE.data), set()
    path = tmp_path / "model.gguf"
    tracemalloc.start()
    try:
        for field in SAMPLE.fields:
            size = struct.calcsize(field.format)
            for value in {value % (1 << 8 * size) for value in EXTREMES}:
                path.unlink(missing_ok=True)
                at = field.position
                path.write_bytes(data[:at] + value.to_bytes(size, "little") + data[at + size :])
                tracemalloc.reset_peak()
                before, start = tracemalloc.get_traced_memory()[0], time.perf_counter()
                message = ""
                try:
                    dict(open_model(path).metadata)
                except GgufError as error:
                    message = str(error)
                assert not message or "model.gguf" in message
                outcomes.add("refused" if message else "read")
                assert time.perf_counter() - start < 1, (field, value)
                # 32 bytes of objects for each byte of file, and 64 KiB for what does not depend on the file.
                assert tracemalloc.get_traced_memory()[1] - before < 32 * len(data) + 65536, (field, value)
    finally:
        tracemalloc.stop()
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("alignment", [0, 3, 33, 48, 2**32 - 1])
def test_an_alignment_that_is_no_power_of_two(tmp_path, alignment):
    refused(
        tmp_path,
        build([("general.alignment", "u32", alignment)]).data,
        "general.alignment",
        "power of two",
        str(alignment),
    )


@pytest.mark.parametrize(("kind", "value"), [("i32", -32), ("string", "32"), ("u32[]", [32]), ("f32", 32.0)], ids=str)
def test_an_alignment_that_is_no_positive_integer(tmp_path, kind, value):
    refused(tmp_path, build([("general.alignment", kind, value)]).data, "general.alignment")


def test_a_huge_alignment_points_past_the_end(tmp_path):
    tensors = [Tensor("a", [8], F32, bytes(32))]
    refused(tmp_path, build([("general.alignment", "u64", 2**63)], tensors).data, "tensor 'a'", "needs bytes")


def test_duplicate_names(tmp_path):
    refused(tmp_path, build([("a", "u32", 1), ("b", "u32", 1), ("a", "u32", 1)]).data, "'a' appears twice")
    twice = [Tensor("t", [8], F32, bytes(32))] * 2
    refused(tmp_path, build([], twice).data, "'t' appears twice")


def test_an_empty_key(tmp_path):
    refused(tmp_path, build([("a", "u32", 1), ("", "u32", 1)]).data, "metadata key 1 is empty")


@pytest.mark.parametrize("bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80"], ids=repr)
def test_bad_utf8(tmp_path, bad):
    refused(tmp_path, build([(b"k" + bad, "u32", 1)]).data, "metadata key 0 is not UTF-8")
    refused(tmp_path, build([("k", "string", bad)]).data, "'k' is not UTF-8")
    refused(tmp_path, build([("k", "string[]", ["ok", bad])]).data, "'k', element 1, is not UTF-8")
    built = build([], [Tensor("x" * len(bad), [8], F32, bytes(32))])
    refused(tmp_path, built.data.replace(b"x" * len(bad), bad, 1), "the name of tensor 0 is not UTF-8")


@pytest.mark.parametrize("kind", ["bool", "bool[]"])
def test_a_boolean_is_zero_or_one(tmp_path, kind):
    data = build([("flag", kind, [True] if kind.endswith("]") else True)], pad_last=False).data
    assert data[-1] == 1
    refused(tmp_path, data[:-1] + b"\x02", "'flag'", "0 or 1", "holds 2")


def test_tensors_that_share_an_offset_overlap(tmp_path):
    tensors = [Tensor("a", [8], F32, bytes(32), 0), Tensor("b", [8], F32, bytes(32), 0)]
    refused(tmp_path, build([], tensors).data, "'a'", "'b'", "inside tensor")


def test_a_tensor_of_id_42_in_too_little_room(tmp_path):
    tensors = [Tensor("a", [640, 64], Q2_0, bytes(160 * 64)), Tensor("b", [512], F32, bytes(2048))]
    refused(tmp_path, build([], tensors).data, "'a'", "'b'", "inside tensor")


@pytest.mark.parametrize("missing", [1, 31, 33, 11520 - 10880 - 1, 11520 - 10880, 700])
def test_a_cut_tensor_of_id_42_is_not_taken_for_the_shorter_layout(tmp_path, missing):
    """Cut by 640 bytes, the last tensor would fit the layout of 128 weights; the other tensor of the file tells."""
    tensors = [Tensor(name, [640, 64], Q2_0, bytes(180 * 64)) for name in "ab"]
    data = build([], tensors, pad_last=False).data
    refused(tmp_path, data[:-missing], "'b'", "needs bytes", f"file has {len(data) - missing} bytes", "truncated")


@pytest.mark.parametrize("weights", [64, 128])
def test_a_tensor_of_id_42_with_more_room_than_padding(tmp_path, weights):
    size = 64 * (180 if weights == 64 else 170)
    tensors = [Tensor(name, [640, 64], Q2_0, bytes(size)) for name in "abc"]
    assert open_model_of(tmp_path, build([], tensors).data).tensors["b"].nbytes == size
    tensors[1] = Tensor("b", [640, 64], Q2_0, bytes(size + 64))
    refused(tmp_path, build([], tensors).data, "'b'", "id 42", f"takes {size} bytes", f"has room for {size + 64}")


def test_long_and_hostile_names_are_cut_and_escaped(tmp_path):
    message = refused(
        tmp_path, build([("\x1b[2J" + "k" * 100_000, "u32", 1)] * 2).data, "appears twice", "100004 characters"
    )
    assert len(message) < 500 + len(str(tmp_path))
    assert message.isprintable()


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "unreadable", "long", "nul", "loop", "empty path"])
def test_paths_that_are_no_files(tmp_path, kind):
    path = tmp_path / "model.gguf"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        if os.geteuid() == 0:
            path = "/proc/self/mem/model.gguf"
        else:
            path.write_bytes(SAMPLE.data)
            path.chmod(0)
    elif kind == "long":
        path = tmp_path / ("model" * 60 + ".gguf")
    elif kind == "nul":
        path = f"{tmp_path}/model\0.gguf"
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "empty path":
        path = ""
    with pytest.raises(GgufError, match=r"model|^.: not a regular file"):
        open_model(path)
