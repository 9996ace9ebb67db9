"""The measured depth: it finds what pays, stops when nothing does, and tries again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.measured import Measured
from strata.engine.drafting.policy import Retries
from strata.engine.drafting.timings import KEPT, RECENT, Timings


def play(right, *, row_cost, draft_cost, most=7):
    """Depths chosen in windows whose drafts are right so many times, and the tokens per time of a window of one row."""
    timings = Timings()
    measured, depths, tokens, spent = Measured(most, timings), [], 0, 0.0
    for good in right:
        depth = measured.plan(most).depth
        depths.append(depth)
        timings.drafted(depth, depth * draft_cost)
        timings.computed(depth + 1, 1.0 + row_cost * depth)
        if depth:
            measured.verified(depth, min(depth, good))
        tokens += 1 + min(depth, good)
        spent += 1.0 + (row_cost + draft_cost) * depth
    return depths, tokens / spent


def test_cheap_rows_and_right_drafts_go_deep():
    depths, speed = play([7] * 60, row_cost=0.05, draft_cost=0.02)
    assert depths[-10:] == [7] * 10
    assert depths.index(7) < 8, "and soon"
    assert speed > 4


def test_only_as_deep_as_drafts_are_right():
    assert play([2] * 200, row_cost=0.1, draft_cost=0.05)[0][-20:] == [2] * 20


@pytest.mark.parametrize("windows", [80, 250, 1000])
def test_text_that_cannot_be_guessed_costs_two_percent_at_most(windows):
    """With Pebble's costs (`bench/results/drafts.json`): a row a tenth of a window, a draft step a quarter."""
    depths, speed = play([0] * windows, row_cost=0.1, draft_cost=0.25)
    assert depths[0] == 0, "the first window says what one row costs"
    assert speed > 0.98
    assert sum(d > 0 for d in depths[-100:]) <= 100 // Retries.MOST + 2


def test_text_that_changes_is_noticed():
    depths, _ = play([0] * 300 + [7] * 150, row_cost=0.1, draft_cost=0.25)
    assert sum(d > 0 for d in depths[200:300]) in (1, 2)
    assert min(depths[300 + Retries.MOST + 10 :]) == 7


def test_drafts_that_are_not_sure_enough_stop_as_well():
    """A chain that ends before its first token costs a step in every window and offers nothing."""
    timings = Timings()
    measured, asked = Measured(7, timings), 0
    for _ in range(100):
        depth = measured.plan(7).depth
        asked += depth > 0
        timings.drafted(min(depth, 1), 0.3)
        timings.computed(1, 1.0)
        if depth:
            measured.verified(1, 0)
    assert 0 < asked < 10


def test_rows_as_dear_as_windows_never_pay():
    late = play([7] * 300, row_cost=1.0, draft_cost=0.1)[0][100:]
    assert sum(d > 0 for d in late) <= 2 * len(late) // Retries.MOST + 2


@given(st.integers(0, 7), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(1e-6, 10)), max_size=40))
def test_a_depth_is_always_within_its_limits(most, history):
    timings = Timings()
    measured = Measured(7, timings)
    for guesses, right, seconds in history:
        timings.drafted(guesses, seconds / 10)
        timings.computed(guesses + 1, seconds)
        measured.verified(guesses, min(guesses, right))
        assert 0 <= measured.plan(most).depth <= most


def test_one_row_measured_in_a_bad_moment_does_not_keep_drafts_going():
    """While drafts are made no window has one row, so nothing else would correct its time."""
    timings = Timings()
    for _ in range(RECENT):
        timings.computed(1, 9.0)
        timings.computed(2, 1.1)
        timings.drafted(1, 0.3)
    assert timings.window(1) == pytest.approx(1.1)


def test_old_times_count_no_more():
    timings = Timings()
    timings.computed(1, 1.0)
    timings.computed(8, 50.0)
    assert timings.window(8) == 50.0
    for _ in range(KEPT):
        timings.computed(1, 1.0)
    assert timings.window(8) == pytest.approx(1.7)


def test_costs_between_measured_windows_are_interpolated():
    timings = Timings()
    timings.computed(1, 1.0)
    timings.computed(5, 2.0)
    assert timings.window(3) == pytest.approx(1.5)
    assert timings.window(7) == pytest.approx(2.2)


def test_a_few_slow_windows_are_not_believed():
    """Another program had the processor for a moment."""
    timings = Timings()
    for seconds in (1.0, 1.0, 9.0, 1.0, 7.0, 1.0):
        timings.computed(1, seconds)
        timings.drafted(2, seconds / 5)
    assert timings.window(1) == 1.0
    assert timings.step == pytest.approx(0.1)


def test_a_new_conversation_knows_what_others_measured():
    timings = Timings()
    assert Measured(7, timings).plan(7).depth == 0, "the first window says what one row costs"
    for depth in (0, 1, 3, 7):
        timings.drafted(depth, depth * 0.02)
        timings.computed(depth + 1, 1.0 + 0.05 * depth)
    assert Measured(7, timings).plan(7).depth > 1


def test_guesses_that_cost_nothing_need_no_measuring():
    timings = Timings()
    timings.computed(1, 1.0)
    assert Measured(7, timings, head=False).plan(7).depth > 1
    assert Measured(7, timings, head=False, prior=0.9).plan(7).depth == 7
    assert Measured(7, timings, head=False, prior=0.05).plan(7).depth == 0
