"""The measured depth: it finds what pays, stops when nothing does, and tries again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.measured import RETRY, Measured
from strata.engine.drafting.timings import Timings


def play(windows, *, row_cost, draft_cost, right, most=7):
    """Depths chosen over many windows where each depth's draft is right with certainty or never."""
    measured, depths = Measured(most), []
    for _ in range(windows):
        depth = measured.depth(most)
        depths.append(depth)
        measured.drafted(depth, depth * draft_cost)
        measured.verified(depth, min(depth, right), 1.0 + row_cost * depth)
    return depths


def test_cheap_rows_and_right_drafts_go_deep():
    assert play(60, row_cost=0.05, draft_cost=0.02, right=7)[-10:] == [7] * 10


def test_only_as_deep_as_drafts_are_right():
    assert play(200, row_cost=0.1, draft_cost=0.05, right=2)[-20:] == [2] * 20


def test_wrong_drafts_stop_and_are_tried_again_now_and_then():
    depths = play(400, row_cost=0.1, draft_cost=0.05, right=0)
    assert depths[0] == 0
    late = depths[200:]
    assert 0 < sum(d > 0 for d in late) <= len(late) / RETRY + 1


def test_drafts_that_are_not_sure_enough_stop_as_well():
    """A chain that ends before its first token costs a step in every window and offers nothing."""
    measured, asked = Measured(7), 0
    for _ in range(100):
        depth = measured.depth(7)
        asked += depth > 0
        measured.drafted(min(depth, 1), 0.3)
        measured.verified(0, 0, 1.0, asked=min(depth, 1))
    assert 0 < asked < 10


def test_rows_as_dear_as_windows_never_pay():
    late = play(300, row_cost=1.0, draft_cost=0.1, right=7)[100:]
    assert sum(d > 0 for d in late) <= len(late) / RETRY + 1


@given(st.integers(0, 7), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(1e-6, 10)), max_size=40))
def test_a_depth_is_always_within_its_limits(most, history):
    measured = Measured(7)
    for guesses, right, seconds in history:
        measured.drafted(guesses, seconds / 10)
        measured.verified(guesses, min(guesses, right), seconds)
        assert 0 <= measured.depth(most) <= most


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
    first = Measured(7, timings)
    assert first.depth(7) == 0, "the first window says what one row costs"
    for depth in (0, 1, 3, 7):
        first.drafted(depth, depth * 0.02)
        first.verified(depth, depth, 1.0 + 0.05 * depth)
    assert Measured(7, timings).depth(7) > 1


def test_guesses_that_cost_nothing_need_no_measuring():
    measured = Measured(7, head=False)
    measured.verified(0, 0, 1.0)
    assert measured.depth(7) > 1
