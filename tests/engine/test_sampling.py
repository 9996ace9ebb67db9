import math
from fractions import Fraction

import numpy as np
import pytest

from strata.engine import Sampling
from strata.errors import RequestError


def test_the_defaults_are_greedy() -> None:
    assert Sampling().greedy
    assert not Sampling(temperature=1.0).greedy  # case G05: 1.0 is no sentinel


def test_equal_meanings_compare_equal() -> None:
    assert Sampling(top_k=-1) == Sampling(top_k=0)
    assert Sampling(seed=2**70 + 7) == Sampling(seed=7)
    assert Sampling(seed=-1).seed == 2**64 - 1
    assert Sampling(temperature=1) == Sampling(temperature=np.float32(1))
    assert Sampling(top_p=Fraction(1, 2)).top_p == 0.5
    assert isinstance(Sampling(top_k=np.int64(3)).top_k, int)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf, 10**400, "0.5", None, True, 1j], ids=repr)
def test_bad_numbers_are_named_with_their_value(name, value) -> None:
    with pytest.raises(RequestError, match=rf"^{name} must be a .*number.* not {str(value)[:5]!r}?".replace("'", "'?")):
        Sampling(**{name: value})


@pytest.mark.parametrize("name", ["top_p", "min_p"])
def test_shares_end_at_one(name) -> None:
    assert getattr(Sampling(**{name: 1}), name) == 1.0
    with pytest.raises(RequestError, match=f"^{name} must be a number from 0 to 1, not 1.0001$"):
        Sampling(**{name: 1.0001})


@pytest.mark.parametrize("name", ["top_k", "seed"])
@pytest.mark.parametrize("value", [1.0, "1", None, False], ids=repr)
def test_bad_integers_are_named_with_their_value(name, value) -> None:
    with pytest.raises(RequestError, match=f"^{name} must be an integer, not {value!r}$"):
        Sampling(**{name: value})


def test_top_k_below_off_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^top_k must be at least 1, or 0 or -1 for off, not -2$"):
        Sampling(top_k=-2)
