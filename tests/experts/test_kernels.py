"""Every kernel against the judge, byte for byte."""

import ctypes
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

from strata.errors import FormatError
from strata.experts import cpu, judge
from strata.experts.codes import READERS, read
from strata.experts.errors import KernelError
from strata.experts.kernels import kernel, product, quantise_rows
from strata.experts.kernels.decoders import DECODERS
from strata.experts.kernels.targets import TARGETS
from strata.formats import by_name
from support.blocks import random_blocks

WIDTHS = (2560, 640, 256, 64)  # inputs of gate and up, of down, and of both in Pebble
LARGE_BLOCKS = (2560, 256)


@pytest.fixture(scope="session")
def built():
    """A kernel of the path, or a skip where this processor has none."""

    def build(name, path):
        if path not in cpu.paths():
            pytest.skip(f"this processor does not run {path}")
        return kernel(by_name(name), path)

    return build


@pytest.mark.parametrize("path", cpu.NEEDS)
@pytest.mark.parametrize("name", DECODERS)
def test_bytes_of_the_judge_for_one_to_eight_rows(name, path, built, matrix, extremes):
    ready, rng = built(name, path), np.random.default_rng([len(path), *name.encode()])
    for width in [width for width in WIDTHS if width % ready.type.weights == 0]:
        raw, (q, s) = matrix(name, (22, width), rng), judge.quantise_rows(extremes(width, rng))
        expected = judge.product(ready.type, raw, q, s).view(np.uint32)
        assert np.isfinite(expected.view(np.float32)).all()
        for rows in range(1, 9):
            found = ready.product(raw, q[8 - rows :], s[8 - rows :]).view(np.uint32)
            np.testing.assert_array_equal(found, expected[8 - rows :], err_msg=f"K = {width}, T = {rows}")


@pytest.mark.parametrize("path", cpu.NEEDS)
def test_the_largest_sums(path, built):
    """Q6_K at 0.8% below 2^24, and Q8_0 with codes of -128 under activations of 127: no step may saturate."""
    q, s = np.full((2, 256), 127, dtype=np.int8), np.ones((2, 8), dtype=np.float32)
    q[1] = -127
    q6 = np.zeros((1, 210), dtype=np.uint8)
    q6[:, 192:208], q6[:, 208:] = 0x80, np.float16([1]).view(np.uint8)
    q8 = np.full((1, 8, 34), 0x80, dtype=np.uint8)
    q8[..., :2] = np.float16([1]).view(np.uint8)
    for name, raw, block in (("Q6_K", q6, 16646144), ("Q8_0", q8.reshape(1, -1), -520192)):
        found = built(name, path).product(raw, q, s)[:, 0]
        np.testing.assert_array_equal(found, [8 * block, -8 * block])


def test_a_part_of_the_rows_is_written_and_nothing_else(built):
    ready, rng = built("IQ4_NL", "plain"), np.random.default_rng(0)
    raw = random_blocks("IQ4_NL", (9, 96), rng)
    q, s = judge.quantise_rows(rng.standard_normal((2, 96)).astype(np.float32))
    out = np.full((2, 9), np.nan, dtype=np.float32)
    records = ready.arrange(q, s)
    ready.run(raw, records, out, 3, 6)
    np.testing.assert_array_equal(out[:, 3:6], judge.product(ready.type, raw, q, s)[:, 3:6])
    assert np.isnan(out[:, :3]).all()
    assert np.isnan(out[:, 6:]).all()


def test_the_row_behind_cannot_be_seen(built):
    """Rows that end inside a group read into the next row, whose scales may be anything."""
    ready, rng = built("Q8_0", cpu.choose()), np.random.default_rng(1)
    raw = random_blocks("Q8_0", (3, 64), rng)
    raw[1:].reshape(-1, 34)[:, :2] = np.float16([np.nan]).view(np.uint8)
    q, s = judge.quantise_rows(rng.standard_normal((1, 64)).astype(np.float32))
    expected = judge.product(ready.type, raw[:1], q, s)
    np.testing.assert_array_equal(ready.product(raw, q, s)[:, :1], expected)


@pytest.mark.parametrize("path", ["plain", cpu.choose()])
@pytest.mark.parametrize("name", DECODERS)
def test_nothing_behind_the_matrix_is_read(name, path, built):
    """The page behind the matrix must not be touched: doing so ends the process."""
    ready, rng = built(name, path), np.random.default_rng(3)
    width = max(64, ready.type.weights)  # several rows of 64 fit into a group
    raw = random_blocks(name, (5, width), rng)
    pages = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    memory = np.frombuffer(pages, dtype=np.uint8)
    end = 3 * mmap.PAGESIZE
    placed = memory[end - raw.size : end].reshape(raw.shape)
    placed[:] = raw
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(memory.ctypes.data + end)
    assert libc.mprotect(guard, mmap.PAGESIZE, 0) == 0
    q, s = judge.quantise_rows(rng.standard_normal((2, width)).astype(np.float32))
    found = ready.product(placed, q, s)
    assert libc.mprotect(guard, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    np.testing.assert_array_equal(found, judge.product(ready.type, raw, q, s))


def test_a_memory_map_and_a_strided_matrix_are_read(built, tmp_path):
    ready, rng = built("Q4_K", cpu.choose()), np.random.default_rng(2)
    raw = random_blocks("Q4_K", (6, 256), rng)
    q, s = judge.quantise_rows(rng.standard_normal((1, 256)).astype(np.float32))
    raw.tofile(tmp_path / "raw")
    mapped = np.memmap(tmp_path / "raw", np.uint8, mode="r", shape=raw.shape)
    expected = judge.product(ready.type, raw, q, s)
    np.testing.assert_array_equal(ready.product(mapped, q, s), expected)
    np.testing.assert_array_equal(ready.product(raw[::2], q, s), expected[:, ::2])


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("name", DECODERS)
def test_orders_hold_every_weight_once_and_keep_lanes_apart(name, target):
    order = DECODERS[name].order(target).astype(int)
    np.testing.assert_array_equal(np.sort(order, axis=None), np.arange(256))
    lane = np.arange(16)[None, :, None]
    np.testing.assert_array_equal(order // 32, np.broadcast_to(lane // 2, order.shape))
    sample = read(by_name(name), np.zeros((1, by_name(name).bytes), dtype=np.uint8))
    if sample.step is not None or sample.unit.shape[-1] == 2:
        np.testing.assert_array_equal(order // 16, np.broadcast_to(lane, order.shape))


def test_every_type_with_an_order_of_operations_has_a_kernel():
    assert set(DECODERS) == set(READERS)
    assert list(cpu.NEEDS) == list(TARGETS)


def test_quantised_activations_have_the_judges_bytes(extremes):
    x = extremes(2560, np.random.default_rng(3))
    for ours, theirs in zip(quantise_rows(x), judge.quantise_rows(x), strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(
    ("raw", "q", "s", "words"),
    [
        ((4, 35), (1, 32), (1, 1), "35"),
        ((4, 34), (1, 64), (1, 2), r"width 32 needs.*\[1, 64\]"),
        ((4, 34), (1, 32), (1, 2), r"scales \[T, 1\]"),
        ((4, 34), (0, 32), (0, 1), r"\[0, 32\]"),
    ],
    ids=["row", "width", "scales", "no rows"],
)
def test_operands_that_do_not_fit_are_refused(raw, q, s, words):
    arrays = np.zeros(raw, np.uint8), np.zeros(q, np.int8), np.zeros(s, np.float32)
    with pytest.raises((KernelError, FormatError), match=words):
        product(by_name("Q8_0"), *arrays, path="plain")


def test_an_output_of_another_shape_is_refused():
    arrays = np.zeros((4, 34), np.uint8), np.zeros((1, 32), np.int8), np.zeros((1, 1), np.float32)
    with pytest.raises(KernelError, match=r"\[1, 4\]"):
        product(by_name("Q8_0"), *arrays, out=np.zeros((4, 1), np.float32), path="plain")


def test_a_type_without_a_kernel_is_refused():
    with pytest.raises(FormatError, match="TQ1_0"):
        kernel(by_name("TQ1_0"))


OLDER = """
import sys, numpy as np
from strata.experts import cpu, judge
from strata.experts.kernels import kernel
from strata.experts.kernels.decoders import DECODERS
from strata.formats import by_name
from support.blocks import random_blocks
rng = np.random.default_rng(0)
for name in DECODERS:
    kind = by_name(name)
    raw = random_blocks(kind, (12, 768), rng)
    q, s = judge.quantise_rows(rng.standard_normal((3, 768)).astype(np.float32))
    found = kernel(kind, sys.argv[1]).product(raw, q, s)
    assert found.tobytes() == judge.product(kind, raw, q, s).tobytes(), name
print(*cpu.paths())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "features", "path"),
    [
        ("alderlake", "+avx2,+f16c,+avxvnni", "avxvnni"),
        ("haswell", "+avx2,+f16c", "avx2"),
        ("nehalem", "+sse4.2", "plain"),
    ],
)
def test_code_compiled_for_an_older_processor(processor, features, path):
    """The same source lowered without AVX-512, and without AVX: other instructions, same bytes."""
    if path not in cpu.paths() or not cpu.features() & {"sse4.2"}:
        pytest.skip(f"this processor does not run {path}")
    environment = os.environ | {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OLDER, path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == path
