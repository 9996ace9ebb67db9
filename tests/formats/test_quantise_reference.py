"""Written bytes against the gguf package's quantisers, for the types it can write."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gguf
from strata.formats import by_name, dequantise, quantise

untimed = settings(deadline=None)  # a busy machine is not a failure

EQUAL = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"]


def oracle(name, x):
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8).reshape(len(x), -1)


def assert_equal_to_gguf(name, x):
    """Bytes, except below 1e-35: there the reference's ``1 / d`` overflows, and it casts NaN to integers."""
    x = x.reshape(-1, by_name(name).weights)
    ours = quantise(by_name(name), x)
    rows = (np.abs(x).max(axis=1) >= 1e-35) | (x == 0).all(axis=1)
    if name in {"Q4_1", "Q5_1"}:
        spread = x.max(axis=1) - x.min(axis=1)
        rows &= (spread >= 1e-35) | (spread == 0)
    if name in {"F32", "F16", "BF16"}:
        rows[:] = True
    np.testing.assert_array_equal(ours[rows], oracle(name, x)[rows])


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1000.0])
def test_bytes_of_gaussian_rows(name, scale):
    x = (np.random.default_rng(11).standard_normal((300, 256)) * scale).astype(np.float32)
    assert_equal_to_gguf(name, x)


@pytest.mark.parametrize("name", EQUAL)
@untimed
@given(x=arrays(np.float32, (1, 256), elements=st.floats(-60000, 60000, width=32), fill=st.floats(-2, 2, width=32)))
def test_bytes_of_any_row(name, x):
    assert_equal_to_gguf(name, x)


@pytest.mark.parametrize("name", EQUAL)
def test_bytes_of_ties_and_equal_peaks(name):
    """Halves of a step, both peaks in one block, constants, zeros of either sign."""
    steps = np.arange(256, dtype=np.float32) / 2
    rows = [steps - 64, 64 - steps, np.tile([8.0, -8.0], 128), np.full(256, 3.0), np.full(256, -3.0)]
    rows += [np.zeros(256), -np.zeros(256), np.eye(1, 256)[0], -np.eye(1, 256, 31)[0]]
    assert_equal_to_gguf(name, np.array(rows, dtype=np.float32))


@pytest.mark.parametrize("scale", [1e-30, 0.02, 1.0, 3e30])
@pytest.mark.parametrize("draw", ["standard_normal", "standard_laplace", "random"])
def test_mxfp4_is_never_worse_than_gguf(draw, scale):
    """Ours may take a neighbouring exponent, so bytes differ; the error of a block must not be larger."""
    rng = np.random.default_rng(2)
    sample = {"standard_laplace": lambda size: rng.laplace(size=size)}.get(draw) or getattr(rng, draw)
    x = (sample((2000, 32)) * scale).astype(np.float32)
    ours = _error("MXFP4", x, quantise(by_name("MXFP4"), x))
    theirs = _error("MXFP4", x, oracle("MXFP4", x))
    assert (ours <= theirs * (1 + 1e-12)).all()
    if draw != "random":  # in uniform rows all peaks are alike, and may all be in the part that is not cut
        assert (ours < 0.9 * theirs).mean() > 0.03


def test_mxfp4_bytes_are_equal_where_the_exponent_is():
    """Ties between two codes included: every weight is a multiple of a quarter unit."""
    x = np.random.default_rng(3).integers(-32, 33, (500, 32)).astype(np.float32) / 4
    ours, theirs = quantise(by_name("MXFP4"), x), oracle("MXFP4", x)
    same = ours[:, 0] == theirs[:, 0]
    assert same.sum() > 50
    np.testing.assert_array_equal(ours[same], theirs[same])


def test_mxfp4_takes_the_next_exponent_for_a_cut_peak():
    x = np.zeros((2, 32), dtype=np.float32)
    x[:, 5] = 8.0, 7.9  # 7.9 would be cut to 6 by the standard exponent
    written = quantise(by_name("MXFP4"), x)
    np.testing.assert_array_equal(dequantise(by_name("MXFP4"), written)[:, 5], [8.0, 8.0])


def _error(name, x, blocks):
    with np.errstate(over="ignore"):
        return ((dequantise(by_name(name), blocks).astype(np.float64) - x) ** 2).sum(axis=1)
