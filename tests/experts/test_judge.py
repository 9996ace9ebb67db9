"""The judge against float64 and against cases worked out by hand."""

import numpy as np
import pytest

from strata.experts import judge
from strata.experts.codes import READERS, read
from strata.formats import by_name, dequantise
from support.blocks import random_blocks

ULP = 2.0**-24  # half a unit in the last place, relative: the error of one rounding


def test_quantised_activations_by_hand():
    x = np.zeros((1, 96), dtype=np.float32)
    x[0, :8] = 127, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5, -0.0
    x[0, 32:34] = 2.0**-100, -(2.0**-101)
    x[0, 64] = np.nextafter(np.float32(2.0**-100), np.float32(0))
    q, s = judge.quantise_rows(x)
    np.testing.assert_array_equal(q[0, :8], [127, 0, 2, 2, 0, -2, -126, 0])  # ties to even
    assert s[0, 0] == 1
    np.testing.assert_array_equal(q[0, 32:34], [127, -64])  # -63.5 to even
    assert s[0, 1] == np.float32(2.0**-100) / np.float32(127)
    assert s[0, 2] == 0
    assert not q[0, 64:].any()


def test_quantised_activations_stay_in_range(extremes):
    """No -128, and every value within half a step and its roundings: |q s - x| <= s / 2 + 4 ulp of x."""
    x = extremes(2560, np.random.default_rng(0))
    q, s = judge.quantise_rows(x)
    assert q.min() >= -127
    step = np.repeat(s, 32, axis=1).astype(np.float64)
    kept = step > 0
    error = np.abs(q * step - x)
    assert (error <= step / 2 + 8 * ULP * np.abs(x))[kept].all()
    assert np.abs(x[~kept]).max() < 2.0**-100


def test_tree_adds_in_lanes_of_16_and_then_by_halves():
    """1e8 + 1 is 1e8 in float32, so where the 1 meets the 1e8 shows the order."""
    big, one = np.float32(1e8), np.float32(1)
    parts = np.zeros((4, 40), dtype=np.float32)
    parts[0, [0, 16, 8]] = big, one, -big  # the 1 joins lane 0 first and is lost
    parts[1, [0, 8, 1]] = big, -big, one  # lanes 0 and 8 cancel before lane 1 comes
    parts[2, [0, 12, 8, 4]] = big, one, -big, 0  # lanes 4 and 12 meet apart from 0 and 8
    parts[3, [0, 8, 24]] = big, one, -big  # lane 8 holds 1 - 1e8 = -1e8
    np.testing.assert_array_equal(judge.tree(parts), [0, 1, 1, 0])


def test_negative_zero_never_comes_out():
    assert not np.signbit(judge.tree(np.full((1, 16), -0.0, dtype=np.float32)))[0]


@pytest.mark.parametrize("name", READERS)
def test_product_is_close_to_float64(name):
    """Against the float64 product of the dequantised operands.

    A term W s D goes through two roundings, M z through two more and one for z itself, their sum through one, then
    ceil(B / 16) additions in a lane and four in the tree: at most 8 + B / 16 roundings of the sum of magnitudes.
    """
    kind, rng = by_name(name), np.random.default_rng(1)
    raw = random_blocks(kind, (48, 2560), rng)
    q, s = judge.quantise_rows(rng.standard_normal((4, 2560)).astype(np.float32))
    x = (q.reshape(4, -1, 32) * s[..., None].astype(np.float64)).reshape(4, -1)
    expected = x @ dequantise(kind, raw).astype(np.float64).T
    codes = read(kind, raw)
    plain = np.abs(codes.unit.astype(np.float64))
    step = np.ones((1, 1, 2)) if codes.step is None else codes.step
    halves = np.einsum("nbhk,tbhk->tnbh", codes.w.reshape(48, -1, 2, 16), q.reshape(4, -1, 2, 16).astype(np.float64))
    magnitude = np.abs(plain * s[:, None, :, None] * step * halves).sum(axis=(-1, -2))
    if codes.minimum is not None:
        sums = s * q.reshape(4, -1, 32).sum(axis=-1)
        magnitude += np.abs(codes.minimum.astype(np.float64) * sums[:, None]).sum(axis=-1)
    error = np.abs(judge.product(kind, raw, q, s) - expected)
    assert (error <= (8 + 2560 / 32 / 16) * ULP * magnitude).all()
    assert error.max() > 0


@pytest.mark.parametrize("name", READERS)
def test_one_hot_activations_pick_a_column(name):
    """With q = 127 in one place, s = 1 / 127 rounded: the product is the weight, but for three roundings."""
    kind, rng = by_name(name), np.random.default_rng(2)
    raw = random_blocks(kind, (5, 256), rng)
    weights = dequantise(kind, raw)
    x = np.zeros((3, 256), dtype=np.float32)
    places = [0, 77, 255]
    x[range(3), places] = 1
    y = judge.product(kind, raw, *judge.quantise_rows(x))
    # Types with a minimum reach the weight as a difference, so the error is relative to its two parts.
    parts = np.abs(weights).max() * 4
    np.testing.assert_allclose(y, weights[:, places].T, rtol=0, atol=8 * ULP * parts)


@pytest.mark.parametrize("name", READERS)
def test_zero_activations_give_positive_zero(name):
    raw = random_blocks(name, (7, 512), np.random.default_rng(4))
    y = judge.product(by_name(name), raw, *judge.quantise_rows(np.full((2, 512), -0.0, dtype=np.float32)))
    np.testing.assert_array_equal(y.view(np.uint32), 0)


def test_tensor_scale_multiplies_the_result():
    kind, rng = by_name("NVFP4"), np.random.default_rng(5)
    raw = random_blocks(kind, (6, 128), rng)
    q, s = judge.quantise_rows(rng.standard_normal((2, 128)).astype(np.float32))
    scaled = judge.matrix_product(judge.Matrix(kind, raw, np.float32(0.3)), q, s)
    np.testing.assert_array_equal(scaled, judge.product(kind, raw, q, s) * np.float32(0.3))


def test_expert_follows_the_formula():
    """Against float64 on the same quantised input: h is off by at most half a step of its own block, then summed."""
    rng = np.random.default_rng(6)
    shapes = {"gate": (64, 256), "up": (64, 256), "down": (256, 64)}
    types = {"gate": "IQ3_XXS", "up": "Q4_K", "down": "Q5_1"}
    parts = {k: judge.Matrix(by_name(types[k]), random_blocks(types[k], shapes[k], rng, 0.1)) for k in shapes}
    q, s = judge.quantise_rows(rng.standard_normal((3, 256)).astype(np.float32))
    x = (q.reshape(3, -1, 32) * s[..., None].astype(np.float64)).reshape(3, -1)
    gate, up, down = (dequantise(m.type, m.raw).astype(np.float64) for m in parts.values())
    g, u = x @ gate.T, x @ up.T
    h = g / (1 + np.exp(-g)) * u
    step = np.repeat(np.abs(h).reshape(3, -1, 32).max(axis=-1) / 127, 32, axis=1)
    # 1e-4 of the largest h covers the float32 roundings of g, u and h, each below 20 ulp of its sum of magnitudes.
    bound = (0.51 * step + 1e-4 * np.abs(h).max()) @ np.abs(down).T
    error = np.abs(judge.expert(parts["gate"], parts["up"], parts["down"], q, s) - h @ down.T)
    assert (error <= bound).all()
    assert error.max() > 0.01 * bound.max()


def test_combine_keeps_the_order_given():
    """1e8 + 1 loses the 1: in this order it is added first and lost."""
    rows = np.array([[[1e8], [1], [-1e8]], [[1e8], [-1e8], [1]]], dtype=np.float32)
    np.testing.assert_array_equal(judge.combine(rows, np.ones((2, 3), dtype=np.float32)), [[0], [1]])
    weighted = judge.combine(rows[:, :1], np.full((2, 1), 0.1, dtype=np.float32))
    np.testing.assert_array_equal(weighted, np.full((2, 1), np.float32(0.1) * np.float32(1e8)))
