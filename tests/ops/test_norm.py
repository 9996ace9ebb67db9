"""RMS norms against the formula in float64 (model spec, section 3)."""

import numpy as np
import torch

from strata.ops.norm.reference import rms, rms_grouped


def test_groups_have_their_own_mean_and_the_weight_spans_all():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 12)) * [[1], [1e-3], [1e3]], rng.standard_normal(12)
    parts = x.reshape(3, 4, 3)
    expected = (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-6)).reshape(3, 12) * w
    got = rms_grouped(torch.from_numpy(x), torch.from_numpy(w), 4, 1e-6)
    assert np.abs(got.numpy() / expected - 1).max() < 1e-13
    whole = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w
    assert np.abs(rms(torch.from_numpy(x), torch.from_numpy(w), 1e-6).numpy() / whole - 1).max() < 1e-13
