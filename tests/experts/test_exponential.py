"""The one exponential against float64."""

import numpy as np

from strata.experts import judge

# docs/numerics.md: the largest error found over every float32 in the range.
EXP_ULP, SILU_ULP = 0.9903, 2.41


def sample():
    """Two million numbers in [-87, 88]: evenly spread, evenly spread bit patterns, and next to the ends."""
    even = np.linspace(-87, 88, 1_000_001, dtype=np.float32)
    bits = np.arange(0, 0x42B00001, 2111, dtype=np.uint32).view(np.float32)  # 0 to 88
    patterns = np.concatenate([bits, -bits[bits <= 87]])
    return np.concatenate([even, patterns, np.float32([-87, 88, 0.0, -0.0])])


def ulps(found, exact):
    return np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


def test_exp_is_within_its_bound():
    x = sample()
    error = ulps(judge.exp(x), np.exp(x.astype(np.float64)))
    assert error.max() <= EXP_ULP
    assert error.max() > 0.9  # the bound is one: the sample comes close to it


def test_exp_saturates():
    ends = judge.exp(np.float32([-87, -88, -1e30, 88, 89, 1e30]))
    np.testing.assert_array_equal(ends, np.repeat(judge.exp(np.float32([-87, 88])), 3))
    np.testing.assert_allclose(ends[[0, 3]], [1.6458e-38, 1.6516e38], rtol=1e-4)
    assert judge.exp(np.float32([0]))[0] == 1


def test_silu_is_within_its_bound():
    g = sample()
    exact = g.astype(np.float64) / (1 + np.exp(-g.astype(np.float64)))
    inside = (np.abs(exact) >= 2.0**-126) & (g != 0)
    assert ulps(judge.silu(g), exact)[inside].max() <= SILU_ULP
    far = np.float32([100, 3e38, -100, -3e30])
    np.testing.assert_array_equal(judge.silu(far)[:2], far[:2])
    assert (np.abs(judge.silu(far)[2:]) <= np.abs(far[2:]) * 6.1e-39).all()
