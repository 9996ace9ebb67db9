"""The writer: what it stores, what it refuses, and that a file appears whole or not at all."""

import os
import stat
import tracemalloc

import numpy as np
import pytest

from strata.errors import GgufError, StrataError
from strata.formats import TYPES, by_name, dequantise
from strata.gguf import TensorData, open_model, write_model
from support.ggufs import SAMPLE_ENTRIES, build, sample, sample_tensors, tiny_model

F32 = by_name("F32")


def stored(kind, value):
    """The Python or NumPy value that asks for this value type."""
    scalar = kind.removesuffix("[]")
    if scalar == "string":
        return value
    dtype = np.dtype("?" if scalar == "bool" else f"{scalar[0]}{int(scalar[1:]) // 8}")
    return np.array(value, dtype) if kind.endswith("[]") else dtype.type(value)


def sample_data():
    return [
        TensorData(
            tensor.name,
            tuple(reversed(tensor.ne)),
            next(kind for kind in TYPES if kind.id == tensor.type_id and tensor.ne[0] % kind.weights == 0),
            np.frombuffer(tensor.data, np.uint8),
        )
        for tensor in sample_tensors()
    ]


def vector(name="a", n=4, data=None):
    return TensorData(name, (n,), F32, np.zeros(4 * n, np.uint8) if data is None else data)


def test_bytes_equal_those_built_by_hand(tmp_path):
    path = tmp_path / "model.gguf"
    metadata = {key: stored(kind, value) for key, kind, value in SAMPLE_ENTRIES}
    assert write_model(path, metadata, sample_data()) == (path,)
    assert path.read_bytes() == sample().data


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, "u32"),
        (True, "bool"),
        (2**32 - 1, "u32"),
        (2**32, "u64"),
        (2**64 - 1, "u64"),
        (-1, "i32"),
        (-(2**31), "i32"),
        (-(2**31) - 1, "i64"),
        (-(2**63), "i64"),
        (0.5, "f32"),
        (float("inf"), "f32"),
        ("x", "string"),
        ([], "string[0]"),
        (["a", ""], "string[2]"),
        (("a",), "string[1]"),
        (np.uint8(3), "u8"),
        (np.float64(0.1), "f64"),
        (np.bool_(1), "bool"),
        (np.arange(3, dtype=">u8"), "u64[3]"),
        (np.arange(6, dtype=np.int16)[::2], "i16[3]"),
        (np.zeros(0, np.float32), "f32[0]"),
        (np.longlong(-4), "i64"),
    ],
    ids=repr,
)
def test_value_types(tmp_path, value, kind):
    path = tmp_path / "model.gguf"
    write_model(path, {"k": value}, [])
    metadata = open_model(path).metadata
    assert metadata.kind("k") == kind
    expected = list(value) if isinstance(value, tuple | list) else value
    np.testing.assert_array_equal(metadata["k"], expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**64, "does not fit any integer type"),
        (-(2**63) - 1, "does not fit any integer type"),
        (1e39, "too large for a float32"),
        ([1, 2], "must hold strings, but element 0 is a int; pass numbers as a NumPy array"),
        (["a", 1], "element 1 is a int"),
        (np.zeros((2, 2)), r"one dimension, not shape \[2, 2\]"),
        (np.zeros(2, np.float16), "float16 cannot be stored"),
        (np.array(["a"]), "<U1 cannot be stored"),
        (1j, "complex cannot be stored"),
        (None, "NoneType cannot be stored"),
        (b"x", "bytes cannot be stored"),
        ("\ud800", "cannot be written as UTF-8"),
    ],
    ids=repr,
)
def test_values_that_cannot_be_stored(tmp_path, value, message):
    with pytest.raises(GgufError, match=f"metadata key 'some.key'.*{message}"):
        write_model(tmp_path / "model.gguf", {"some.key": value}, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorData("t", (), F32, np.zeros(4, np.uint8)), r"shape \[\] must be 1 to 4 numbers"),
        (TensorData("t", (1, 1, 1, 1, 1), F32, np.zeros(4, np.uint8)), "must be 1 to 4 numbers"),
        (TensorData("t", (4, 0), F32, np.zeros(0, np.uint8)), "of at least 1"),
        (TensorData("t", (2, 31), by_name("Q8_0"), np.zeros(68, np.uint8)), "Q8_0"),
        (vector("t", data=np.zeros(15, np.uint8)), "F32 of shape [4] takes 16 bytes, but the data has 15"),
        (vector("t", data=np.zeros(4, np.float32)), "must be uint8, not float32"),
        (vector("t", data=lambda: [np.zeros(8, np.uint8)]), "takes 16 bytes, but the data has 8"),
    ],
    ids=lambda part: part[:40] if isinstance(part, str) else "-".join(map(str, part.shape)),
)
def test_tensors_that_cannot_be_stored(tmp_path, tensor, message):
    with pytest.raises(GgufError, match="tensor 't': ") as caught:
        write_model(tmp_path / "model.gguf", {}, [vector("first"), tensor])
    assert message.replace("\\", "") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([], "1 to 65535 files, not 0"),
        ([["a"]], "'b' is in 0 shards"),
        ([["a", "b"], ["b"]], "'b' is in 2 shards"),
        ([["a", "b", "c"]], "'c' is not given"),
    ],
    ids=str,
)
def test_a_placement_must_name_each_tensor_once(tmp_path, shards, message):
    with pytest.raises(GgufError, match=message):
        write_model(tmp_path / "model.gguf", {}, [vector("a"), vector("b")], shards=shards)
    assert list(tmp_path.iterdir()) == []


def test_two_layouts_of_one_id(tmp_path):
    tensors = [TensorData(name, (1, 128), by_name(name), np.zeros(36 if name == "Q2_0" else 34, np.uint8))
               for name in ("Q2_0", "Q2_0_128")]  # fmt: skip
    with pytest.raises(GgufError, match="Q2_0 and Q2_0_128 share type id 42"):
        write_model(tmp_path / "model.gguf", {}, tensors)


def test_duplicate_tensors_and_empty_keys(tmp_path):
    with pytest.raises(GgufError, match="'a' is given 2 times"):
        write_model(tmp_path / "model.gguf", {}, [vector(), vector()])
    with pytest.raises(GgufError, match="key is empty"):
        write_model(tmp_path / "model.gguf", {"": 1}, [])


@pytest.mark.parametrize("alignment", [1, 8, 64, np.uint64(128)], ids=repr)
@pytest.mark.parametrize("shards", [None, [["a"], ["b"]]], ids=["one file", "two files"])
def test_alignment_holds_in_every_file(tmp_path, alignment, shards):
    values = np.arange(5, dtype=np.float32).view(np.uint8)
    paths = write_model(
        tmp_path / "m.gguf", {"general.alignment": alignment}, [vector(n, 5, values) for n in "ab"], shards=shards
    )
    model = open_model(paths[0])
    for name in "ab":
        assert model.load(name).tolist() == [0, 1, 2, 3, 4]
        assert model.tensors[name].offset % int(alignment) == 0


@pytest.mark.parametrize("alignment", [0, 3, -8, True, "32"], ids=repr)
def test_alignments_that_are_none(tmp_path, alignment):
    with pytest.raises(GgufError, match=r"general\.alignment"):
        write_model(tmp_path / "m.gguf", {"general.alignment": alignment}, [])


def test_split_keys_belong_to_the_writer(tmp_path):
    paths = tiny_model(tmp_path / "a.gguf", shards=[["token_embd.weight"], ["blk.0.ffn_gate_exps.weight"],
                                                    ["blk.0.ffn_up_exps.weight", "output_norm.weight"]])  # fmt: skip
    model = open_model(paths[1])
    assert [model.metadata.kind(f"split.{key}") for key in ("no", "count", "tensors.count")] == ["u16", "u16", "i32"]
    tensors = [TensorData(i.name, i.shape, i.type, model.raw(i.name)) for i in model.tensors.values()]
    (joined,) = write_model(tmp_path / "joined.gguf", model.metadata, tensors)
    again = open_model(joined)
    assert "split.count" not in again.metadata
    assert {name: again.raw(name).tobytes() for name in again.tensors} == {
        name: model.raw(name).tobytes() for name in model.tensors
    }


def test_an_open_model_may_be_written_over_itself(tmp_path):
    path = tmp_path / "model.gguf"
    tiny_model(path)
    before, model = path.read_bytes(), open_model(path)
    write_model(
        path, model.metadata, [TensorData(i.name, i.shape, i.type, model.raw(i.name)) for i in model.tensors.values()]
    )
    assert path.read_bytes() == before


def test_quantised_data_reads_back_as_the_type_rounds_it(tmp_path):
    values = np.random.default_rng(1).standard_normal((6, 64), np.float32)
    kind = by_name("Q8_0")
    write_model(tmp_path / "m.gguf", {}, [TensorData.quantised("w", values, kind)])
    found = open_model(tmp_path / "m.gguf").load("w")
    # Step d = max|x|/127, an error of half a step, and d itself is rounded to float16 (2**-11 of at most 127 steps).
    step = np.abs(values.reshape(6, 2, 32)).max(axis=2, keepdims=True) / 127
    assert (np.abs(found - values).reshape(6, 2, 32) <= step * (0.5 + 127 * 2**-11 + 1e-5)).all()
    np.testing.assert_array_equal(found, dequantise(kind, open_model(tmp_path / "m.gguf").raw("w")))


def test_large_tensors_are_streamed(tmp_path):
    """64 MiB pass through with less than 3 MiB held: the piece of 1 MiB in hand, the next one, and small change."""
    pieces, size = 64, 1 << 20

    def data():
        for index in range(pieces):
            yield np.full(size, index, np.uint8)

    tensor = TensorData("t", (pieces, size // 4), F32, data)
    tracemalloc.start()
    try:
        write_model(tmp_path / "m.gguf", {}, [tensor])
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()
    raw = open_model(tmp_path / "m.gguf").raw("t")
    assert (raw == np.arange(pieces, dtype=np.uint8)[:, None]).all()


def test_non_contiguous_data(tmp_path):
    data = np.arange(64, dtype=np.uint8).reshape(8, 8)[::2, ::2]
    write_model(tmp_path / "m.gguf", {}, [vector(data=data)])
    assert open_model(tmp_path / "m.gguf").raw("a").tolist() == data.reshape(-1).tolist()


def test_a_failure_in_the_second_file_leaves_none(tmp_path):
    def broken():
        yield np.zeros(4, np.uint8)
        raise StrataError("the source broke")

    with pytest.raises(StrataError, match="the source broke"):
        write_model(tmp_path / "m.gguf", {}, [vector("a"), vector("b", data=broken)], shards=[["a"], ["b"]])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "m.gguf"
    tiny_model(path)
    before = path.read_bytes()
    with pytest.raises(GgufError):
        write_model(path, {}, [vector(data=np.zeros(3, np.uint8))])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_complete_before_it_has_its_name(tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: seen.append(list(tmp_path.iterdir())) or replace(a, b))
    paths = write_model(tmp_path / "m.gguf", {}, [vector("a"), vector("b")], shards=[["a"], ["b"]])
    assert len(seen) == 2
    assert all(path.suffix == ".part" for path in seen[0])
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_file_has_ordinary_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        (path,) = write_model(tmp_path / "m.gguf", {}, [])
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    (path,) = write_model(tmp_path / ("n" * 250 + ".gguf"), {"a": 1}, [])
    assert open_model(path).metadata["a"] == 1


@pytest.mark.parametrize("path", ["absent/m.gguf", "", "nul\0.gguf", "folder", "n" * 300, "absent\0/m.gguf"], ids=repr)
def test_places_that_cannot_be_written(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(GgufError):
        write_model(path, {}, [])
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GgufError, match=r"m\.gguf: cannot be written: No space left on device"):
        write_model(tmp_path / "m.gguf", {}, [])
    assert list(tmp_path.iterdir()) == []


def test_the_builder_and_the_writer_pad_alike(tmp_path):
    write_model(tmp_path / "m.gguf", {"k": "x" * 5}, [vector("a", 3), vector("b", 9)])
    read = open_model(tmp_path / "m.gguf")
    assert [info.offset % 32 for info in read.tensors.values()] == [0, 0]
    assert (tmp_path / "m.gguf").stat().st_size % 32 == 0
    assert build([]).data[:4] == b"GGUF"
