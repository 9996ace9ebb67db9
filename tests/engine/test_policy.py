"""The depth policy: its arithmetic, and properties it must have whatever the numbers."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.drafter import Guesser
from strata.engine.drafting.misses import Misses
from strata.engine.drafting.options import Drafting
from strata.engine.drafting.policy import Acceptance, Costs, Retries, best_plan, expected_tokens
from strata.engine.drafting.timings import Timings
from strata.model.tally import Tally

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


@given(RATES, st.lists(st.floats(0.1, 10), min_size=8, max_size=8), st.floats(0, 500), st.floats(0, 1))
def test_misses_only_make_drafts_shallower(rates, extra, one, each):
    windows = list(itertools.accumulate(extra))
    misses = [Misses(one, 1).expected(rows) for rows in range(1, 9)]
    free, priced = Costs(windows), Costs(windows, 0.0, misses, each)
    assert priced.step(0) == pytest.approx(windows[0] + one * each)
    plan = best_plan(rates, priced)
    speed = [expected_tokens(rates, d) / (windows[d] + misses[d] * each) for d in range(len(rates) + 1)]
    assert speed[plan.depth] >= max(speed) / 1.02001
    if each == 0 or one == 0:
        assert plan == best_plan(rates, free)


def test_dear_misses_stop_drafts_that_cheap_ones_let_pay():
    windows, misses = [10.0, 10.5, 11.0, 11.5], [100.0, 175.0, 240.0, 305.0]
    assert best_plan([0.7, 0.7, 0.7], Costs(windows, 0.3)).depth == 3
    assert best_plan([0.7, 0.7, 0.7], Costs(windows, 0.3, misses, 0.05)).depth == 2
    assert best_plan([0.7, 0.7, 0.7], Costs(windows, 0.3, misses, 1.0)).depth == 0


def test_misses_of_more_rows_grow_as_measured():
    known = Misses().after(1, 100)
    assert known.expected(1) == 100
    for rows, times in ((2, 1.75), (3, 2.4), (4, 3.05)):
        assert known.expected(rows) == pytest.approx(100 * times, rel=0.01)
    assert Misses().after(4, 305).expected(1) == pytest.approx(100, rel=0.01)
    for _ in range(30):
        known = known.after(4, 61)
    assert known.expected(1) == pytest.approx(20, rel=0.2), "old windows fade"


def test_timings_take_misses_out_of_windows_and_add_them_again():
    timings = Timings(miss=0.001)
    for _ in range(20):
        timings.computed(1, 0.010 + 0.001 * 50, misses=50)
    assert timings.window(1) == pytest.approx(0.010)
    assert timings.misses(1) == pytest.approx(50)
    timings.computed(1, 0.010, misses=50)  # a miss was cheaper than it is said to be
    assert timings.window(1) > 0
    without = Timings()
    without.computed(1, 0.060, misses=50)
    assert (without.window(1), without.misses(4)) == (0.060, 0.0)


def test_a_guesser_prices_the_misses_its_network_met() -> None:
    """What a window met is asked where a miss costs something, and only there."""
    asked = []

    def met() -> Tally:
        asked.append(1)
        return Tally(experts=400, resident=300, link=60, host=40)

    for miss, expected in ((25e-6, 0.010 - 100 * 25e-6), (0.0, 0.010)):
        asked.clear()
        network = SimpleNamespace(miss=miss, met=met)
        timings = Timings(network.miss)
        guesser = Guesser(Drafting(3, measured=True), network, [1, 2, 3], timings=timings)
        guesser.learn(0, 0, 0.010)
        assert timings.window(1) == pytest.approx(expected)
        assert timings.misses(1) == (100 if miss else 0)
        assert len(asked) == (miss > 0)
        assert Guesser(Drafting(3), network, [])._timings.miss == miss
