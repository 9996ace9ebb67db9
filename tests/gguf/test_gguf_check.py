"""The file check: bad block scales (public faults, M15), holes and checksums (M01)."""

import hashlib
import os
import struct
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from strata.formats import TYPES, by_name
from strata.gguf import BadBlocks, TensorData, checksums, find_bad_blocks, find_holes, open_model, write_model
from support.ggufs import F32, Tensor, build, tiny_model

# Where a half-precision scale lies in a block (gguf-tensors spec, section 6).
HALF = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208, "TQ1_0": 52, "TQ2_0": 64}
NO_HALF = {"F32", "BF16", "F16", "MXFP4", "NVFP4", "IQ1_M"}
SCALED = [kind for kind in TYPES if kind.name not in NO_HALF]


def healthy(kind, rows, width):
    """Random blocks whose scales are all finite: small scale, whatever the codes."""
    raw = np.random.default_rng(kind.id).integers(0, 256, (rows, width // kind.weights, kind.bytes), np.uint8)
    for at in scale_places(kind):
        raw[..., at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    return raw


def scale_places(kind):
    first = HALF.get(kind.name, 0)
    second = {"Q4_1": 2, "Q5_1": 2, "Q2_K": 82, "Q4_K": 2, "Q5_K": 2}.get(kind.name)
    return [first] if second is None else [first, second]


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("kind", SCALED, ids=lambda kind: f"{kind.name}-{kind.weights}x{kind.bytes}")
def test_bad_scales_of_one_expert_are_found(tmp_path, kind, scale):
    experts, rows, width = 8, 40, 2 * kind.weights
    raw = healthy(kind, experts * rows, width).reshape(experts, rows, 2, kind.bytes)
    for row, block in [(7, 0), (7, 1), (31, 1)]:
        for at in scale_places(kind):
            raw[5, row, block, at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    path = tmp_path / "model.gguf"
    good = TensorData("good", (rows, width), kind, healthy(kind, rows, width))
    write_model(path, {}, [good, TensorData("exps", (experts, rows, width), kind, raw)])
    assert find_bad_blocks(open_model(path)) == [BadBlocks("exps", 5, 7, 31, 3)]
    assert find_bad_blocks(open_model(path), ["good"]) == []


@pytest.mark.parametrize(
    ("name", "position", "bits"), [("F32", 0, b"\0\0\xc0\x7f"), ("BF16", 0, b"\x80\x7f"), ("F16", 0, b"\0\xfc")]
)
def test_bad_plain_weights_are_counted_one_by_one(tmp_path, name, position, bits):
    kind = by_name(name)
    raw = np.zeros((10, 4, kind.bytes), np.uint8)
    raw[3, 1, position : position + len(bits)] = raw[4, 0, position : position + len(bits)] = np.frombuffer(
        bits, np.uint8
    )
    write_model(tmp_path / "m.gguf", {}, [TensorData("w", (10, 4), kind, raw), TensorData("v", (40,), kind, raw)])
    found = find_bad_blocks(open_model(tmp_path / "m.gguf"))
    assert found == [BadBlocks("w", None, 3, 4, 2), BadBlocks("v", None, 0, 0, 2)]
    assert [str(bad).split(":")[0] for bad in found] == ["w, rows 3-4", "v, row 0"]


def test_an_e8m0_scale_that_overflows_is_found(tmp_path):
    """Exponent 255 times the largest code, 12, is past float32."""
    raw = np.zeros((2, 3, 17), np.uint8)
    raw[1, 2, 0], raw[1, 2, 1] = 255, 0x77
    write_model(tmp_path / "m.gguf", {}, [TensorData("w", (2, 96), by_name("MXFP4"), raw)])
    assert find_bad_blocks(open_model(tmp_path / "m.gguf")) == [BadBlocks("w", None, 1, 1, 1)]


def test_an_iq1_m_scale_in_four_nibbles_is_found(tmp_path):
    raw = np.zeros((3, 56), np.uint8)
    raw[1, 48:] = np.frombuffer(struct.pack("<4H", 0x0000, 0xC000, 0xF000, 0x7000), np.uint8)  # 0x7fc0: NaN
    write_model(tmp_path / "m.gguf", {}, [TensorData("w", (3, 256), by_name("IQ1_M"), raw)])
    assert find_bad_blocks(open_model(tmp_path / "m.gguf")) == [BadBlocks("w", None, 1, 1, 1)]


def test_four_dimensions_count_rows_inside_the_first(tmp_path):
    weights = np.zeros((2, 3, 5, 4), np.float32)
    weights[1, 2, 1, 3] = np.nan
    write_model(tmp_path / "m.gguf", {}, [TensorData.quantised("w", np.zeros_like(weights), by_name("F32"))])
    data = TensorData("w", weights.shape, by_name("F32"), weights.view(np.uint8))
    write_model(tmp_path / "m.gguf", {}, [data])
    assert find_bad_blocks(open_model(tmp_path / "m.gguf")) == [BadBlocks("w", 1, 11, 11, 1)]


def test_chunks_change_nothing_but_the_progress(tmp_path, monkeypatch):
    kind = by_name("Q8_0")
    raw = healthy(kind, 4 * 6, 96).reshape(4, 6, 3, kind.bytes)
    raw[1, :, :, :2] = raw[3, 2, 0, :2] = np.frombuffer(np.float16(np.nan).tobytes(), np.uint8)
    write_model(
        tmp_path / "m.gguf", {}, [TensorData("w", (4, 6, 96), kind, raw), TensorData("v", (6, 96), kind, raw[0])]
    )
    model, expected = open_model(tmp_path / "m.gguf"), [BadBlocks("w", 1, 0, 5, 18), BadBlocks("w", 3, 2, 2, 1)]
    steps = []
    assert find_bad_blocks(model, progress=lambda *step: steps.append(step)) == expected
    total = raw.size + raw[0].size
    assert steps == [(raw.size, total), (total, total)]
    monkeypatch.setattr("strata.gguf.check.CHUNK", 5 * 32)
    steps.clear()
    assert find_bad_blocks(model, progress=lambda *step: steps.append(step)) == expected
    assert len(steps) == 15 + 4
    assert steps[-1] == (total, total)
    assert all(one < other for one, other in pairwise(steps))


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    """160 MiB of weights, one row: a chunk of 2**18 weights is 1 MiB as float32; decoders need a few times that."""
    kind = by_name("Q8_0")
    row = np.zeros(40 << 20, np.uint8)[: (40 << 20) // 34 * 34]
    write_model(tmp_path / "m.gguf", {}, [TensorData("w", (len(row) // 34 * 32,), kind, row)])
    model = open_model(tmp_path / "m.gguf")
    tracemalloc.start()
    try:
        assert find_bad_blocks(model) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("written", "expected"),
    [([(0, 5)], {"b": 3}), ([(0, 1), (7, 8)], {"a": 3, "b": 3}), ([(0, 8)], {})],
    ids=["tail", "across two tensors", "none"],
)
def test_holes_are_found_where_the_file_system_records_them(tmp_path, written, expected):
    """Two tensors of 4 MiB; the MiB not written are holes. File systems record whole blocks, of at most 64 KiB."""
    path = tmp_path / "model.gguf"
    built = build([], [Tensor("a", [1 << 20], F32, b"", 0), Tensor("b", [1 << 20], F32, b"", 4 << 20)], pad_last=False)
    start = -(-len(built.data) // 32) * 32
    with path.open("wb") as file:
        file.truncate(start + (8 << 20))
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) != 0:
            pytest.skip("this file system keeps no record of holes")
        file.write(built.data)
        for first, last in written:
            file.seek(start + (first << 20))
            file.write(b"\x01" * (last - first << 20))
    holes = find_holes(open_model(path))
    assert [hole.tensor for hole in holes] == list(expected)
    for hole in holes:
        assert abs(hole.nbytes - (expected[hole.tensor] << 20)) <= 65536
        assert hole.nbytes <= 4 << 20
        assert "never written" in str(hole)


def test_a_file_written_whole_has_no_holes(tmp_path):
    tiny_model(tmp_path / "m.gguf")
    assert find_holes(open_model(tmp_path / "m.gguf")) == []


def test_checksums_are_those_of_the_files(tmp_path):
    names = ["token_embd.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "output_norm.weight"]
    paths = tiny_model(tmp_path / "m.gguf", shards=[names[:1], names[1:]])
    steps = []
    found = checksums(open_model(paths[0]), lambda *step: steps.append(step))
    assert found == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert steps[-1] == (sum(path.stat().st_size for path in paths),) * 2
