"""The depth policy: its arithmetic, and properties it must have whatever the numbers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.policy import Acceptance, Costs, Retries, best_plan, expected_tokens

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
    depth, promised = best_plan(rates, costs)
    speed = [expected_tokens(rates, d) / costs.step(d) for d in range(len(rates) + 1)]
    if depth == 0:
        assert all(s <= speed[0] * 1.0200001 for s in speed)
    else:
        assert speed[depth] == max(speed)
        assert speed[depth] > 1.02 * speed[0]
        assert promised == pytest.approx(speed[depth] / speed[0])


def test_drafting_stops_when_it_does_not_pay():
    flat, steep = Costs([1.0, 1.1, 1.2, 1.3], 0.05), Costs([1, 2, 3, 4], 0.05)
    assert best_plan([0.9, 0.9, 0.9], flat).depth == 3
    assert best_plan([0.9, 0.9, 0.9], steep) == (0, 1.0)
    assert best_plan([0.1, 0.9, 0.9], flat) == (0, 1.0)
    assert best_plan([], flat) == (0, 1.0)


def test_acceptance_learns_and_forgets():
    known = Acceptance.unknown(3)
    assert known.rates == pytest.approx((0.5,) * 3)
    assert Acceptance.unknown(2, 0.25).after(1, 0).rates == pytest.approx((0.5 / 3,) * 2), "rounded off with the prior"
    assert Acceptance.unknown(2).after(1, 1).rates == pytest.approx((2 / 3,) * 2), "the next step is as easy"
    for _ in range(100):
        known = known.after(drafted=3, accepted=1)
    assert known.rates[0] > 0.95
    assert known.rates[1] < 0.1
    assert known.rates[2] == pytest.approx(known.rates[1]), "a depth that was never reached is as the one before"
    for _ in range(100):
        known = known.after(drafted=3, accepted=3)
    assert min(known.rates) > 0.95
    assert known.after(drafted=0, accepted=0) == known


def test_retries_become_rare_and_frequent_again_once_drafts_paid():
    """Each retry doubles the wait up to its bound; enough gained starts over."""
    retries, waits = Retries(), []
    for _ in range(5):
        waits.append(0)
        while not retries.due:
            retries, waits[-1] = retries.waited(), waits[-1] + 1
        retries = retries.tried(again=True, gained=0)
    assert waits == [16, 32, 64, 64, 64]
    assert retries.tried(again=False, gained=Retries.PAID - 1).wait == 64
    assert retries.tried(again=False, gained=Retries.PAID) == Retries()
