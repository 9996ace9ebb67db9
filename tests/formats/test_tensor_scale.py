"""The per-tensor and per-expert scales of NVFP4 files."""

import numpy as np
import pytest

from strata.errors import FormatError
from strata.formats import apply_tensor_scale

WEIGHTS = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def test_one_scale_per_expert():
    scaled = apply_tensor_scale(WEIGHTS, np.array([2.0, -0.5], dtype=np.float32))
    np.testing.assert_array_equal(scaled[0], WEIGHTS[0] * 2)
    np.testing.assert_array_equal(scaled[1], WEIGHTS[1] * -0.5)
    assert scaled.dtype == np.float32


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_scale_for_all(shape):
    for weights in (WEIGHTS, WEIGHTS[0]):
        scaled = apply_tensor_scale(weights, np.full(shape, 0.25, dtype=np.float32))
        np.testing.assert_array_equal(scaled, weights * 0.25)
        assert scaled.dtype == np.float32


@pytest.mark.parametrize(("weights", "scales"), [((2, 3, 4), 3), ((2, 3, 4), 4), ((3, 4), 3), ((2, 3, 4), 0)])
def test_scales_that_do_not_belong(weights, scales):
    with pytest.raises(FormatError, match="scale tensor"):
        apply_tensor_scale(np.zeros(weights, np.float32), np.zeros(scales, np.float32))
