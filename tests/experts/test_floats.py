"""Float products, SwiGLU and the combine: the judge's bytes, whatever the number of rows."""

import math

import numpy as np
import pytest

from strata.errors import FormatError
from strata.experts import judge
from strata.experts.errors import KernelError
from strata.experts.kernels import combine, float_product, swiglu
from strata.formats import by_name, dequantise, quantise


def _case(name, n, width, rng):
    weights = rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
    raw = quantise(by_name(name), weights.astype(np.float32))
    x = (rng.standard_normal((8, width)) * 10.0 ** rng.uniform(-4, 4, width)).astype(np.float32)
    x[3] *= np.float32(1e-38)
    x[4] = -0.0
    return raw, dequantise(by_name(name), raw), x


@pytest.mark.parametrize("width", [1, 4, 15, 16, 33, 320, 2560])
@pytest.mark.parametrize("name", ["F32", "BF16", "F16"])
def test_bytes_of_the_judge_for_one_to_eight_rows(name, width):
    """Also at widths that are not whole lanes, and for 1, 2, 3 rows of weights left over."""
    rng = np.random.default_rng(width)
    raw, weights, x = _case(name, 11, width, rng)
    expected = judge.float_product(weights, x)
    for rows in range(1, 9):
        found = float_product(by_name(name), raw[: 12 - rows], x[:rows])
        assert found.tobytes() == np.ascontiguousarray(expected[:rows, : 12 - rows]).tobytes()


def test_judge_is_close_to_the_exact_sum():
    """One rounding to float32, and K / 16 + 4 roundings of the sum of magnitudes in float64."""
    _, weights, x = _case("F32", 6, 640, np.random.default_rng(0))
    got = judge.float_product(weights, x[:3])
    for t, n in np.ndindex(got.shape):
        products = [float(a) * float(b) for a, b in zip(weights[n], x[t], strict=True)]  # exact in float64
        exact = math.fsum(products)
        limit = 2.0**-24 * abs(exact) + (640 / 16 + 4) * 2.0**-53 * math.fsum(map(abs, products)) + 2.0**-149
        assert abs(float(got[t, n]) - exact) <= limit


def test_nothing_behind_a_row_is_read():
    """The last row ends where memory ends as far as NumPy is concerned; what follows in the buffer is NaN."""
    buffer = np.full(64, np.nan, dtype=np.float32)
    buffer[:20] = 1
    raw = buffer[:20].view(np.uint8).reshape(1, 80)
    np.testing.assert_array_equal(float_product(by_name("F32"), raw, np.ones((1, 20), np.float32)), [[20]])


@pytest.mark.parametrize(
    ("name", "raw", "x", "error"),
    [
        ("Q8_0", (2, 34), (1, 32), FormatError),
        ("F32", (2, 8), (1, 4), KernelError),
        ("BF16", (8,), (1, 4), KernelError),
        ("BF16", (2, 8), (0, 4), KernelError),
    ],
)
def test_operands_that_do_not_fit_are_refused(name, raw, x, error):
    with pytest.raises(error, match=name if error is FormatError else r"\["):
        float_product(by_name(name), np.zeros(raw, np.uint8), np.zeros(x, np.float32))


def test_swiglu_has_the_judges_bytes():
    rng = np.random.default_rng(1)
    gate = (rng.standard_normal((8, 640)) * 10.0 ** rng.uniform(-40, 3, (8, 640))).astype(np.float32)
    gate[0, :8] = 0, -0.0, 87, -87, 88, -88, 1e30, -1e30
    gate[1] = np.linspace(-90, 90, 640)
    up = rng.standard_normal((8, 640)).astype(np.float32)
    assert swiglu(gate, up).tobytes() == (judge.silu(gate) * up).tobytes()
    with pytest.raises(KernelError, match=r"\[8, 640\] and \[8, 4\]"):
        swiglu(gate, up[:, :4])


def test_combine_has_the_judges_bytes():
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((8, 11, 2560)) * 10.0 ** rng.uniform(-20, 10, (8, 11, 1))).astype(np.float32)
    weights = rng.random((8, 11)).astype(np.float32)
    assert combine(rows, weights).tobytes() == judge.combine(rows, weights).tobytes()
    with pytest.raises(KernelError, match=r"\[8, 3\]"):
        combine(rows, weights[:, :3])
