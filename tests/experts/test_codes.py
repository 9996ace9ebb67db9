"""Integer codes and scales against the dequantised weights, and the bounds that keep integer sums exact."""

import numpy as np
import pytest

from strata.errors import FormatError
from strata.experts.codes import READERS, read
from strata.formats import by_name, dequantise

LIMIT = 2**24  # below it every integer is a float32


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("seed", range(2))
def test_codes_times_scales_are_the_dequantised_weights(name, seed):
    kind = by_name(name)
    raw = np.random.default_rng(seed).integers(0, 256, (24, kind.row_bytes(1024)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours = read(kind, raw).weights()
    theirs = dequantise(kind, raw)
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(np.isfinite(ours), finite)
    # Equal, but zeros may differ in sign: a negative step times a zero code is a plain zero as an integer.
    np.testing.assert_array_equal(ours[finite], theirs[finite])


@pytest.mark.parametrize("name", READERS)
def test_block_sums_stay_exact_in_float32(name):
    """The largest sum any block of the type can reach with codes of 127, from its largest codes and steps."""
    kind = by_name(name)
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, (4096, kind.bytes), dtype=np.uint8)
    raw[:256] = np.arange(256, dtype=np.uint8)[:, None]
    with np.errstate(all="ignore"):
        codes = read(kind, raw)
    largest = int(np.abs(codes.w.astype(np.int32)).max())
    step = 1 if codes.step is None else int(np.abs(codes.step).max())
    assert 32 * 127 * largest * step < LIMIT


def test_q6_k_reaches_its_bound():
    """128 * 32 * 127 * 32 = 16,646,144 is the largest sum of all types: 0.8% below 2^24."""
    raw = np.zeros((1, 210), dtype=np.uint8)
    raw[:, 192:208] = 0x80
    codes = read(by_name("Q6_K"), raw)
    assert codes.w.min() == codes.w.max() == -32
    assert (codes.step == -128).all()
    assert LIMIT > 128 * 32 * 127 * 32


def test_a_type_without_an_order_is_refused():
    with pytest.raises(FormatError, match=r"Q2_K.*Dequantise"):
        read(by_name("Q2_K"), np.zeros((1, 84), dtype=np.uint8))


@pytest.mark.parametrize("shape", [(4, 33), (34,), (0, 34)], ids=str)
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(FormatError, match="Q8_0"):
        read(by_name("Q8_0"), np.zeros(shape, dtype=np.uint8))
