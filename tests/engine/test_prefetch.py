"""Bets on what a drafted window visits: chances of several rows add up, and only good ones are taken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.prefetch import LEAST, fetchable, worth_fetching


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1)), max_size=30),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.5, LEAST]),
)
def test_the_best_bets(guesses, most, least) -> None:
    keys, chances = np.array([k for k, _ in guesses], np.int64), np.array([c for _, c in guesses])
    found = worth_fetching(keys, chances, most, least).tolist()
    missed = {}
    for key, chance in guesses:
        missed[key] = missed.get(key, 1.0) * (1 - chance)
    sure = {key: 1 - none for key, none in missed.items()}
    assert len(set(found)) == len(found) == min(most, sum(chance >= least for chance in sure.values()))
    assert [sure[key] for key in found] == pytest.approx(sorted(sure.values(), reverse=True)[: len(found)])


def test_what_fits_into_the_time_of_a_draft() -> None:
    assert fetchable(1.4e-3, 25e9, 1_750_000) == 20
    assert fetchable(0.0, 25e9, 1_750_000) == 0
