"""The measured depth: it finds what pays, stops when nothing does, and tries again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.measured import RETRY, Measured


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
    measured = Measured(7)
    measured.verified(0, 0, 1.0)
    measured.verified(4, 4, 2.0)
    assert measured._window(3) == pytest.approx(1.5)
    assert measured._window(7) == pytest.approx(2.2)
