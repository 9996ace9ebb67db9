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
    assert Sampling(top_k=10**30, penalty_window=10**30) == Sampling(top_k=10**40, penalty_window=10**40)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "typical_p"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, -math.inf, 10**400, "0.5", None, True, 1j], ids=repr)
def test_bad_numbers_are_named_with_their_value(name, value) -> None:
    with pytest.raises(RequestError, match=rf"^{name} must be a .*number.* not {str(value)[:5]!r}?".replace("'", "'?")):
        Sampling(**{name: value})


@pytest.mark.parametrize("name", ["top_p", "min_p", "typical_p"])
def test_shares_end_at_one(name) -> None:
    assert getattr(Sampling(**{name: 1}), name) == 1.0
    with pytest.raises(RequestError, match=f"^{name} must be a number from 0 to 1, not 1.0001$"):
        Sampling(**{name: 1.0001})


@pytest.mark.parametrize("name", ["top_k", "seed", "penalty_window"])
@pytest.mark.parametrize("value", [1.0, "1", None, False], ids=repr)
def test_bad_integers_are_named_with_their_value(name, value) -> None:
    with pytest.raises(RequestError, match=f"^{name} must be an integer, not {value!r}$"):
        Sampling(**{name: value})


def test_top_k_below_off_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^top_k must be at least 1, or 0 or -1 for off, not -2$"):
        Sampling(top_k=-2)


@pytest.mark.parametrize(("name", "least", "most"), [
    ("repetition_penalty", 0.01, 100.0), ("frequency_penalty", -2.0, 2.0), ("presence_penalty", -2.0, 2.0),
])  # fmt: skip
def test_penalties_have_ends(name, least, most):
    for value in (least, most, 1):
        assert getattr(Sampling(**{name: value}), name) == value
    for value in (
        math.nextafter(least, -math.inf),
        math.nextafter(most, math.inf),
        math.nan,
        math.inf,
        "1",
        None,
        True,
    ):
        with pytest.raises(RequestError, match=f"^{name} must be a number from {least:g} to {most:g}, not "):
            Sampling(**{name: value})


def test_penalty_window_below_all_is_refused():
    assert Sampling(penalty_window=10**12).penalty_window == 10**12
    with pytest.raises(RequestError, match=r"^penalty_window must be at least 0, or -1 for all tokens, not -2$"):
        Sampling(penalty_window=-2)


def test_whether_anything_is_penalised():
    assert not Sampling().penalises
    assert not Sampling(presence_penalty=1.0, penalty_window=0).penalises
    for change in ({"repetition_penalty": 1.1}, {"frequency_penalty": -0.1}, {"presence_penalty": 0.1}):
        assert Sampling(**change).penalises


def test_biases_are_pairs_by_rising_id():
    assert Sampling(logit_bias={7: 1, 2: np.float32(-3)}).logit_bias == ((2, -3.0), (7, 1.0))
    assert Sampling(logit_bias=[(7, 1), [2, -3]]) == Sampling(logit_bias={2: -3.0, 7: 1.0})
    assert hash(Sampling(logit_bias={7: 1}))
    assert Sampling(logit_bias={}) == Sampling()


@pytest.mark.parametrize(("value", "wrong"), [
    ({1: 100.5}, r"logit_bias\[1\] must be a number from -100 to 100, not 100.5"),
    ({1: math.nan}, r"logit_bias\[1\] must be a number from -100 to 100, not nan"),
    ({1: "2"}, r"logit_bias\[1\] must be a number from -100 to 100, not '2'"),
    ({1: None}, r"logit_bias\[1\] must be a number"),
    ({"1": 2}, r"every token id of logit_bias must be an integer, not '1'"),
    ({True: 2}, r"every token id of logit_bias must be an integer, not True"),
    ({-1: 2}, r"logit_bias has the token id -1 below 0"),
    ([(1, 2), (1, 3)], r"logit_bias has the token id 1 twice"),
    ([1, 2], r"logit_bias must be a mapping"),
    ("12", r"logit_bias must be a mapping"),
    (5, r"logit_bias must be a mapping"),
    (None, r"logit_bias must be a mapping"),
], ids=repr)  # fmt: skip
def test_bad_biases_are_named(value, wrong):
    with pytest.raises(RequestError, match=f"^{wrong}"):
        Sampling(logit_bias=value)
