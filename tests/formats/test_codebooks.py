"""Grids, signs and the nearest codeword of the IQ types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gguf
from strata.formats.codebooks.grids import grid
from strata.formats.codebooks.nearest import nearest
from strata.formats.codebooks.signs import even_signs, fold, signs

untimed = settings(deadline=None)  # a busy machine is not a failure

GRIDS = {"IQ1": "IQ1_S", "IQ2_XXS": "IQ2_XXS", "IQ2_XS": "IQ2_XS", "IQ2_S": "IQ2_S"}
GRIDS |= {"IQ3_XXS": "IQ3_XXS", "IQ3_S": "IQ3_S"}


@pytest.mark.parametrize(("name", "oracle_name"), GRIDS.items())
def test_grids_are_those_of_gguf(name, oracle_name):
    oracle = getattr(gguf.quants, oracle_name)
    oracle.init_grid()
    np.testing.assert_array_equal(grid(name), oracle.grid[0, 0])
    assert grid(name).dtype == np.float32


def test_grids_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        grid("IQ2_S")[0, 0] = 1


def test_even_signs_are_those_of_gguf():
    table = np.frombuffer(gguf.quants.IQ2_XXS.ksigns, dtype=np.uint8)
    bits = (table[:, None] >> np.arange(8)) & 1
    np.testing.assert_array_equal(even_signs(np.arange(128)), 1.0 - 2.0 * bits)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("seed", range(3))
def test_nearest_codeword(name, seed):
    """No codeword is nearer than the one found, by distances in float64."""
    words = grid(name).astype(np.float64)
    span = words.max() - words.min()
    rng = np.random.default_rng(seed)
    x = (words.min() + rng.uniform(-0.5, 1.5, (3, 500, words.shape[1])) * span).astype(np.float32)
    found = nearest(x, grid(name))
    assert found.shape == (3, 500)
    distance = ((x[:, :, None].astype(np.float64) - words) ** 2).sum(axis=-1)
    chosen = np.take_along_axis(distance, found[..., None], axis=-1)[..., 0]
    # The scores are float32 sums of 9 products, each at most (1.5 span)^2: off by 2 * 9 * 2^-24 of that.
    assert (chosen <= distance.min(axis=-1) + 18 * 2.0**-24 * 8 * (1.5 * span) ** 2).all()


@pytest.mark.parametrize("name", GRIDS)
def test_a_codeword_is_nearest_to_itself(name):
    np.testing.assert_array_equal(nearest(grid(name), grid(name)), np.arange(len(grid(name))))


@untimed
@given(st.lists(st.floats(-100, 100, width=32), min_size=8, max_size=8))
def test_free_signs_come_back(values):
    x = np.array(values, dtype=np.float32)
    magnitudes, packed = fold(x, even=False)
    assert (magnitudes >= 0).all()
    np.testing.assert_array_equal(magnitudes * signs(packed), x)


@untimed
@given(st.lists(st.floats(-100, 100, width=32), min_size=8, max_size=8))
def test_even_signs_give_up_the_smallest_magnitude_if_they_must(values):
    x = np.array(values, dtype=np.float32)
    magnitudes, packed = fold(x, even=True)
    np.testing.assert_array_equal(magnitudes * signs(packed), x)
    assert int(packed).bit_count() % 2 == 0
    np.testing.assert_array_equal(even_signs(packed & np.uint8(127)), signs(packed))
    given_up = magnitudes < 0
    odd = np.count_nonzero(x < 0) % 2 == 1
    assert given_up.sum() == (1 if odd and np.abs(x).min() > 0 else 0)
    assert (np.abs(magnitudes[given_up]) == np.abs(x).min()).all()
