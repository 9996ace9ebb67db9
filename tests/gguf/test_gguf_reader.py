"""Reading sound files: tensors, rows, and files in awkward places."""

import contextlib
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from strata.errors import GgufError
from strata.formats import TYPES, dequantise
from strata.gguf import open_model
from support.ggufs import F16, F32, Q2_0, Q8_0, Tensor, build, sample, sample_tensors, tiny_model


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(sample().data)
    return path


EXPECTED = {
    "norm.weight": np.arange(5),
    "matrix.weight": np.arange(12).reshape(4, 3),
    "experts.weight": np.tile(np.arange(-16, 16) * 0.5, 6).reshape(3, 2, 32),
    "two.weight": np.tile([-2, 0, 2, 4], 24 * 48).reshape(24, 192),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_weights_and_shapes(path, name):
    model = open_model(path)
    weights = model.load(name)
    assert weights.dtype == np.float32
    assert model.tensors[name].shape == EXPECTED[name].shape
    np.testing.assert_array_equal(weights, EXPECTED[name])


def test_the_table_keeps_its_order_and_says_where_bytes_lie(path):
    model = open_model(path)
    data = path.read_bytes()
    assert list(model.tensors) == [tensor.name for tensor in sample_tensors()]
    for tensor in sample_tensors():
        info = model.tensors[tensor.name]
        assert info.name == tensor.name
        assert info.path == path
        assert info.type.id == tensor.type_id
        assert info.nbytes == len(tensor.data)
        assert data[info.offset : info.offset + info.nbytes] == tensor.data
    assert model.files == (path,)


def test_raw_is_a_read_only_view_of_the_file(path):
    model = open_model(path)
    raw = model.raw("experts.weight")
    assert raw.shape == (3, 2, 34)
    assert raw.tobytes() == sample_tensors()[2].data
    assert not raw.flags.writeable
    assert not raw.flags.owndata


def test_views_outlive_the_directory(path):
    raw = open_model(path).raw("two.weight")
    gc.collect()
    assert raw.tobytes() == sample_tensors()[3].data


def test_files_are_closed_with_the_directory(path):
    def count():
        gc.collect()
        found = 0
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # other threads open and close files of their own
                found += one.readlink() == path
        return found

    model = open_model(path)
    assert count() > 0
    del model
    assert count() == 0


@pytest.mark.parametrize(
    "ids", [[2], [3, 0], [1, 1, 1], [3, 2, 1, 0, 3], range(4), [], np.array([2, 0], np.uint64)], ids=str
)
@pytest.mark.parametrize("name", ["matrix.weight", "two.weight"])
def test_rows_equal_the_loaded_matrix(path, name, ids):
    model = open_model(path)
    rows = model.rows(name, ids)
    assert rows.dtype == np.float32
    assert rows.shape == (len(ids), model.tensors[name].shape[1])
    np.testing.assert_array_equal(rows, model.load(name)[np.asarray(ids, np.int64)])


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("matrix.weight", [0, 4], "row 4 is out of range, there are 4"),
        ("matrix.weight", [-1], "row -1 is out of range"),
        ("matrix.weight", np.array([2**64 - 1], np.uint64), "row 18446744073709551615 is out of range"),
        ("matrix.weight", [2**70], "expected a list of integers"),
        ("matrix.weight", [0.0], "expected a list of integers"),
        ("matrix.weight", [True], "expected a list of integers"),
        ("matrix.weight", [[0]], "expected a list of integers"),
        ("norm.weight", [0], r"shape \[5\], no rows"),
        ("experts.weight", [0], r"shape \[3, 2, 32\], no rows"),
    ],
    ids=str,
)
def test_rows_refuses_what_is_no_row(path, name, ids, message):
    with pytest.raises(GgufError, match=rf"model\.gguf: .*'{name}'.*{message}"):
        open_model(path).rows(name, ids)


def test_an_unknown_tensor_gets_close_names(path):
    model = open_model(path)
    for call in (model.raw, model.load, model.info, lambda name: model.rows(name, [0])):
        with pytest.raises(
            GgufError, match=r"model\.gguf: no tensor 'matrx\.weight'; close names are 'matrix\.weight'"
        ):
            call("matrx.weight")


def test_the_last_tensor_need_not_be_padded(tmp_path):
    path = tmp_path / "model.gguf"
    tensors = sample_tensors()[:2]
    built = build([], tensors, pad_last=False)
    assert len(built.data) % 32
    path.write_bytes(built.data)
    np.testing.assert_array_equal(open_model(path).load("matrix.weight"), EXPECTED["matrix.weight"])


def test_a_file_without_tensors_need_not_be_padded(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(build([("a", "u32", 1)], pad_last=False).data)
    model = open_model(path)
    assert len(model.tensors) == 0
    assert model.metadata["a"] == 1


@pytest.mark.parametrize("alignment", [1, 2, 8, 32, 64, 4096])
@pytest.mark.parametrize("kind", ["u32", "u64", "i16"])
def test_the_alignment_key_is_obeyed(tmp_path, alignment, kind):
    path = tmp_path / "model.gguf"
    built = build([("general.alignment", kind, alignment)], sample_tensors(), alignment=alignment)
    path.write_bytes(built.data)
    model = open_model(path)
    for name, expected in EXPECTED.items():
        np.testing.assert_array_equal(model.load(name), expected)


def test_tensors_may_lie_in_any_order_and_with_gaps(tmp_path):
    path = tmp_path / "model.gguf"
    a, b = (np.full(8, value, np.float32).tobytes() for value in (1, 2))
    body = a + bytes(64) + b
    path.write_bytes(build([], [Tensor("b", [8], F32, body, 96), Tensor("a", [8], F32, b"", 0)]).data)
    model = open_model(path)
    assert model.load("a").tolist() == [1] * 8
    assert model.load("b").tolist() == [2] * 8


def test_metadata_only_keys_of_odd_names_are_kept(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(build([("a\n\x00b", "u32", 1), ("ключ", "u32", 2)]).data)
    assert list(open_model(path).metadata) == ["a\n\x00b", "ключ"]


@pytest.mark.parametrize("last", [True, False], ids=["last in file", "followed"])
@pytest.mark.parametrize(("weights", "nbytes"), [(64, 18), (128, 34)], ids=["64 weights", "128 weights"])
def test_both_layouts_of_id_42_are_told_apart_by_length(tmp_path, weights, nbytes, last):
    rows, width = 40, 640
    raw = np.random.default_rng(0).integers(0, 256, (rows, width // weights, nbytes), np.uint8)
    raw[..., :2] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    follower = [] if last else [Tensor("b", [4], F32, bytes(16))]
    path = tmp_path / "model.gguf"
    path.write_bytes(build([], [Tensor("a", [width, rows], Q2_0, raw.tobytes()), *follower]).data)
    model = open_model(path)
    info = model.tensors["a"]
    assert (info.type.weights, info.type.bytes, info.nbytes) == (weights, nbytes, raw.size)
    # The codes are the spec's: two bits, lowest first, minus one, times the scale in front.
    codes = raw[..., 2:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    np.testing.assert_array_equal(model.load("a"), (codes.reshape(rows, width) - 1.0) * 0.5)


def test_a_small_tensor_of_id_42_follows_the_large_ones_of_its_file(tmp_path):
    # [1, 128]: 36 or 34 bytes, both padded to 64; only the large tensor tells.
    small, large = Tensor("small", [128, 1], Q2_0, bytes(34)), Tensor("large", [640, 64], Q2_0, bytes(170 * 64))
    path = tmp_path / "model.gguf"
    path.write_bytes(build([], [small, large, Tensor("c", [4], F32, bytes(16))]).data)
    assert {info.type.bytes for info in list(open_model(path).tensors.values())[:2]} == {34}
    path = tmp_path / "alone.gguf"
    path.write_bytes(build([], [small, Tensor("c", [4], F32, bytes(16))]).data)
    assert open_model(path).tensors["small"].type.bytes == 18


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: f"{kind.name}-{kind.weights}x{kind.bytes}")
def test_load_and_rows_in_every_type(tmp_path, kind):
    rng = np.random.default_rng(kind.id)
    rows, width = 37, kind.weights * 3
    raw = rng.integers(0, 256, (rows, kind.row_bytes(width)), np.uint8)
    path = tmp_path / "model.gguf"
    path.write_bytes(build([], [Tensor("a", [width, rows], kind.id, raw.tobytes())], pad_last=False).data)
    model = open_model(path)
    expected = dequantise(kind, raw)
    np.testing.assert_array_equal(model.load("a"), expected)
    np.testing.assert_array_equal(model.rows("a", [36, 0, 5, 6, 5]), expected[[36, 0, 5, 6, 5]])


def test_an_n_gram_table_larger_than_memory_is_read_by_rows(tmp_path):
    """28.8 GB at the released model's shape, IQ4_NL, as a sparse file; rows are checked against hand-made blocks."""
    rows, row_bytes = 320_001_536, 90
    path = tmp_path / "model.gguf"
    built = build(
        [("general.alignment", "u32", 8)], [Tensor("per_layer_token_embd.weight", [160, rows], 20, b"")], alignment=8
    )
    start = len(built.data)
    assert start % 4096  # the table does not start on a page
    path.write_bytes(built.data)
    block = np.float16(1).tobytes() + bytes([0x80] * 16)  # low nibble 0: -127, high nibble 8: 1
    spots = [0, 45, 46, 91, rows // 2, rows - 1]  # row 45 crosses a page border
    with path.open("r+b") as file:
        file.truncate(start + rows * row_bytes)
        for row in spots:
            file.seek(start + row * row_bytes)
            file.write(block * 5)
    model = open_model(path)
    assert model.tensors["per_layer_token_embd.weight"].nbytes == 28_800_138_240
    found = model.rows("per_layer_token_embd.weight", [*reversed(spots), 1, 0])
    expected = np.tile(np.repeat([-127.0, 1.0], 16), 5)
    for row in (*range(len(spots)), -1):
        np.testing.assert_array_equal(found[row], expected)
    np.testing.assert_array_equal(found[-2], np.zeros(160))


@pytest.mark.parametrize("most", [1, 7])
def test_short_reads_are_continued(path, monkeypatch, most):
    expected = open_model(path).load("two.weight")
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: whole(fd, [buffers[0][:most]], at))
    np.testing.assert_array_equal(open_model(path).rows("two.weight", range(24)), expected)


def test_a_failing_disk_is_an_error(path, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    model = open_model(path)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(GgufError, match=r"model\.gguf: reading at byte \d+ failed: Input/output error"):
        model.rows("two.weight", [0])


def test_a_file_cut_after_opening_is_an_error_for_rows(path):
    model = open_model(path)
    os.truncate(path, model.tensors["two.weight"].offset + 10)
    with pytest.raises(GgufError, match="changed meanwhile"):
        model.rows("two.weight", [0])


NAMES = {
    "non-Latin": "мод ель/漢字 & 'x'/модель.gguf",
    "300 characters": f"{'a' * 150}/{'b' * 150}.gguf",
    "newline": "a\nb/m\nodel.gguf",
    "not UTF-8": os.fsdecode(b"caf\xe9/model.gguf"),
    "no suffix": "model",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_any_path_opens_and_appears_unbroken_in_errors(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sample().data)
    model = open_model(str(path))
    assert model.load("norm.weight").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(GgufError) as caught:
        model.load("absent")
    assert str(caught.value).encode().decode().startswith(os.fsencode(path).decode("utf-8", "backslashreplace"))


def test_a_read_only_file_behind_a_link_opens(path):
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert open_model(path).load("norm.weight").size == 5
    finally:
        path.parent.chmod(0o755)
    folder = path.parent / "elsewhere"
    folder.mkdir()
    link = folder / "link.gguf"
    link.symlink_to(path)
    assert open_model(link).load("norm.weight").size == 5
    assert open_model(link).files == (link,)


def test_a_file_may_be_rewritten_while_it_is_open(tmp_path):
    path = tmp_path / "model.gguf"
    tiny_model(path)
    model = open_model(path)
    before = model.load("token_embd.weight")
    tiny_model(path)
    np.testing.assert_array_equal(model.load("token_embd.weight"), before)


def test_type_ids_of_the_builder_are_the_formats():
    assert {(kind.id, kind.name) for kind in TYPES} >= {(F32, "F32"), (F16, "F16"), (Q8_0, "Q8_0"), (Q2_0, "Q2_0")}
