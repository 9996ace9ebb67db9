"""The `gguf` package reads what we write and writes what we read."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gguf
from strata.formats import TYPES, by_name
from strata.gguf import TensorData, open_model, write_model
from support.ggufs import SAMPLE_ENTRIES

KNOWN = {kind.id: kind for kind in TYPES if kind.id in {int(known) for known in gguf.GGMLQuantizationType}}


def theirs(path):
    """(metadata, {name: (shape, type id, bytes)}) as GGUFReader sees them."""
    reader = gguf.GGUFReader(path)
    metadata = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tensors = {
        tensor.name: (tuple(reversed(tensor.shape.tolist())), int(tensor.tensor_type), tensor.data.tobytes())
        for tensor in reader.tensors
    }
    return metadata, tensors


def ours(path):
    model = open_model(path)
    metadata = {
        key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in model.metadata.items()
    }
    tensors = {name: (info.shape, info.type.id, model.raw(name).tobytes()) for name, info in model.tensors.items()}
    return metadata, tensors


@pytest.mark.parametrize("kind", KNOWN.values(), ids=lambda kind: kind.name)
def test_the_package_reads_our_files_in_every_type_it_knows(tmp_path, kind):
    raw = np.random.default_rng(0).integers(0, 256, (3, 5, kind.row_bytes(2 * kind.weights)), np.uint8)
    path = tmp_path / "model.gguf"
    write_model(path, {"general.architecture": "x"}, [TensorData("t", (3, 5, 2 * kind.weights), kind, raw)])
    assert theirs(path)[1] == {"t": ((3, 5, 2 * kind.weights), kind.id, raw.tobytes())}
    assert theirs(path) == ours(path)


@pytest.mark.parametrize("kind", [kind for kind in KNOWN.values() if kind.name != "Q1_0"], ids=lambda kind: kind.name)
def test_weights_equal_the_packages(tmp_path, kind):
    """Bit for bit, NaN included, on random blocks."""
    raw = np.random.default_rng(1).integers(0, 256, (64, kind.row_bytes(3 * kind.weights)), np.uint8)
    path = tmp_path / "model.gguf"
    write_model(path, {}, [TensorData("t", (64, 3 * kind.weights), kind, raw)])
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind.id))
    np.testing.assert_array_equal(open_model(path).load("t"), expected)


def their_file(path, **options):
    """A file by GGUFWriter with values of every kind that it writes."""
    writer = gguf.GGUFWriter(path, "qwen4exp", **options)
    for key, kind, value in SAMPLE_ENTRIES:
        if key.startswith("one."):
            add = {"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "f32": "float32", "f64": "float64"}
            getattr(writer, f"add_{add.get(kind, kind.replace('i', 'int') if kind[0] == 'i' else kind)}")(key, value)
    writer.add_string("text", "näme 漢字")
    writer.add_array("texts", ["a", "Ġb", ""])
    writer.add_array("ints", [11, 11, 10, 0])
    writer.add_array("reals", [0.5, 0.25])
    writer.add_array("flags", [True, False])
    rng = np.random.default_rng(0)
    for index in range(6):
        writer.add_tensor(f"plain.{index}", rng.standard_normal((3, 7), np.float32))
    blocks = gguf.quants.quantize(rng.standard_normal((4, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return rng


def test_we_read_the_packages_files(tmp_path):
    path = tmp_path / "model.gguf"
    their_file(path)
    assert ours(path) == theirs(path)
    model = open_model(path)
    assert model.metadata["one.u64"] == 2**64 - 1
    assert model.metadata["ints"].tolist() == [11, 11, 10, 0]
    assert model.tensors["blocks"].shape == (4, 64)


def test_we_read_the_packages_split_sets(tmp_path):
    their_file(tmp_path / "whole.gguf")
    their_file(tmp_path / "model.gguf", split_max_tensors=3, small_first_shard=True)
    paths = sorted(tmp_path.glob("model-*.gguf"))
    assert len(paths) > 2
    whole = open_model(tmp_path / "whole.gguf")
    for path in paths:
        model = open_model(path)
        assert model.files == tuple(paths)
        assert {name: model.raw(name).tobytes() for name in model.tensors} == {
            name: whole.raw(name).tobytes() for name in whole.tensors
        }
        assert model.metadata["texts"] == ["a", "Ġb", ""]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
INTEGERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    *(
        st.integers(np.iinfo(code).min, np.iinfo(code).max).map(np.dtype(code).type)
        for code in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
    ),
)
FLOATS = st.floats(allow_nan=False, width=32)
ARRAYS = st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "?"]).flatmap(
    lambda code: arrays(code, st.integers(0, 5), elements={"allow_nan": False} if code[0] == "f" else None)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(INTEGERS, FLOATS, st.booleans(), TEXTS, st.lists(TEXTS, max_size=5), ARRAYS)
RESERVED = {"general.alignment", "split.no", "split.count", "split.tensors.count"}
METADATA = st.dictionaries(
    NAMES.filter(lambda name: name not in RESERVED and not name.startswith("GGUF.")), VALUES, max_size=6
)


@st.composite
def tensor_sets(draw, kinds):
    """Tensors of any shape and type with random bytes."""
    tensors = []
    missing = draw(st.sampled_from([kind for kind in kinds if kind.id == 42] or [None]))  # one of two layouts at a time
    kinds = [kind for kind in kinds if kind is not missing]
    for name in draw(st.lists(NAMES, unique=True, max_size=5)):
        kind = draw(st.sampled_from(kinds))
        shape = (*draw(st.lists(st.integers(1, 3), max_size=3)), kind.weights * draw(st.integers(1, 3)))
        data = np.random.default_rng(draw(st.integers(0, 2**32))).integers(
            0, 256, (*shape[:-1], kind.row_bytes(shape[-1])), np.uint8
        )
        tensors.append(TensorData(name, shape, kind, data))
    return tensors


def agree(found, given):
    """A value as read equals the value as given."""
    if isinstance(given, np.ndarray):
        assert found.dtype == given.dtype
        assert found.tolist() == given.tolist()
    else:
        assert found == given
        assert isinstance(found, bool) == isinstance(given, bool | np.bool_)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(metadata=METADATA, tensors=tensor_sets(list(TYPES)), alignment=st.sampled_from([1, 8, 32, 64]), data=st.data())
def test_any_model_reads_back_as_written(tmp_path_factory, metadata, tensors, alignment, data):
    path = tmp_path_factory.mktemp("any") / "model.gguf"
    count = data.draw(st.integers(1, 4), "shards")
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=len(tensors), max_size=len(tensors)), "places")
    shards = [[t.name for t, at in zip(tensors, places, strict=True) if at == index] for index in range(count)]
    paths = write_model(
        path, {**metadata, "general.alignment": alignment}, tensors, shards=data.draw(st.sampled_from([None, shards]))
    )
    model = open_model(data.draw(st.sampled_from(paths)))
    for key, value in metadata.items():
        agree(model.metadata[key], value)
    assert {key for key in model.metadata if key not in RESERVED} == set(metadata)
    assert set(model.tensors) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        assert model.tensors[tensor.name].shape == tensor.shape
        assert model.tensors[tensor.name].type.id == tensor.type.id
        assert model.tensors[tensor.name].offset % alignment == 0
        if model.tensors[tensor.name].type is tensor.type:  # small tensors of id 42 look alike, see docs/files.md
            assert model.raw(tensor.name).tobytes() == tensor.data.tobytes()
        else:
            assert tensor.type.id == by_name("Q2_0").id


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(metadata=METADATA, tensors=tensor_sets(list(KNOWN.values())))
def test_any_model_reads_back_through_the_package(tmp_path_factory, metadata, tensors):
    path = tmp_path_factory.mktemp("any") / "model.gguf"
    write_model(path, metadata, tensors)
    assert theirs(path) == ours(path)
