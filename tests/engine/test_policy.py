"""The depth policy: its arithmetic, and properties it must have whatever the numbers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.policy import Acceptance, Costs, best_depth, expected_tokens

RATES = st.lists(st.floats(0, 1), max_size=7)


def by_outcomes(acceptance, depth):
    """Expected tokens by listing every outcome of every draft."""
    total = 0.0
    for outcome in itertools.product((True, False), repeat=depth):
        p, tokens, alive = 1.0, 1, True
        for right, rate in zip(outcome, acceptance, strict=False):
            p *= rate if right else 1 - rate
            alive = alive and right
            tokens += alive
        total += p * tokens
    return total


@given(RATES)
def test_expected_tokens_count_every_outcome(rates):
    for depth in range(len(rates) + 1):
        assert expected_tokens(rates, depth) == pytest.approx(by_outcomes(rates, depth), abs=1e-12)


@given(RATES, st.lists(st.floats(0.1, 10), min_size=8, max_size=8), st.floats(0, 5))
def test_the_best_depth_is_never_beaten(rates, extra, draft):
    costs = Costs(list(itertools.accumulate(extra)), draft)
    depth = best_depth(rates, costs)
    speed = [expected_tokens(rates, d) / costs.step(d) for d in range(len(rates) + 1)]
    if depth == 0:
        assert all(s <= speed[0] * 1.02 for s in speed)
    else:
        assert speed[depth] == max(speed)
        assert speed[depth] > 1.02 * speed[0]


def test_drafting_stops_when_it_does_not_pay():
    flat, steep = Costs([1.0, 1.1, 1.2, 1.3], 0.05), Costs([1, 2, 3, 4], 0.05)
    assert best_depth([0.9, 0.9, 0.9], flat) == 3
    assert best_depth([0.9, 0.9, 0.9], steep) == 0
    assert best_depth([0.1, 0.9, 0.9], flat) == 0
    assert best_depth([], flat) == 0


def test_acceptance_learns_and_forgets():
    known = Acceptance.hopeful(3)
    assert known.rates == pytest.approx((2 / 3,) * 3)
    for _ in range(100):
        known = known.after(drafted=3, accepted=1)
    assert known.rates[0] > 0.99
    assert known.rates[1] < 0.01
    assert known.rates[2] == pytest.approx(2 / 3), "a depth that was never reached says nothing"
    for _ in range(100):
        known = known.after(drafted=3, accepted=3)
    assert min(known.rates) > 0.98
    assert known.after(drafted=0, accepted=0) == known
