"""Rotary angles against the formulas of model spec section 8 in float64."""

import math

import numpy as np
import pytest
import torch

from strata.model.config import Rope
from strata.ops.rope.reference import axis_of_frequency, cos_sin, frequencies, rotate

REAL = Rope(dims=64, theta=1e7, sections=(11, 11, 10))


def test_sections_are_interleaved_as_the_spec_says():
    axis = axis_of_frequency(REAL).tolist()
    expected = [1 if i % 3 == 1 and i < 33 else 2 if i % 3 == 2 and i < 30 else 0 for i in range(32)]
    assert axis == expected
    tiny = axis_of_frequency(Rope(dims=16, theta=1e7, sections=(3, 3, 2))).tolist()
    assert [i for i, a in enumerate(tiny) if a == 1] == [1, 4, 7]
    assert [i for i, a in enumerate(tiny) if a == 2] == [2, 5]


def test_plain_rotation_in_pairs_half_a_head_apart():
    positions = np.array([0, 1, 77, 200_000])
    x = np.random.default_rng(0).standard_normal((4, 2, 96)).astype(np.float32)
    a = positions[:, None] * 1e7 ** (-2 * np.arange(32) / 64)
    c, s = np.cos(a)[:, None], np.sin(a)[:, None]
    x1, x2 = x[..., :32], x[..., 32:64]
    expected = np.concatenate((x1 * c - x2 * s, x2 * c + x1 * s, x[..., 64:]), -1)
    three = torch.from_numpy(positions)[:, None].repeat(1, 3)
    got = rotate(torch.from_numpy(x), *cos_sin(three, REAL)).numpy()
    # the angle itself is float32: an error of up to half an ulp of 200,000, plus the frequency's own
    assert np.abs(got[:3] - expected[:3]).max() < 77 * 3 * 2.0**-24 * np.abs(x).max() * 2
    assert np.abs(got[3] - expected[3]).max() < 200_000 * 3 * 2.0**-24 * np.abs(x).max() * 2
    assert np.array_equal(got[..., 64:], x[..., 64:])


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_yarn_constants_of_the_real_model(factor):
    """Section 8.1: low 14, high 22, and the attention factor 1 + 0.1 ln F."""
    yarn = Rope(dims=64, theta=1e7, sections=(11, 11, 10), scale=factor, original_context=262144)
    inv, attention = frequencies(yarn)
    plain = 1e7 ** (-2 * np.arange(32) / 64)
    ramp = np.clip((np.arange(32) - 14) / 8, 0, 1)
    expected = plain * (1 - ramp) + plain / factor * ramp
    assert np.abs(inv.numpy() / expected - 1).max() < 4 * 2.0**-23
    assert attention == pytest.approx(1 + 0.1 * math.log(factor), abs=1e-12)
    cos, sin = cos_sin(torch.zeros(1, 3, dtype=torch.int64), yarn)
    assert torch.equal(cos, torch.full((1, 32), attention))
    assert torch.equal(sin, torch.zeros(1, 32))
