"""How long passes are while others wait: what is learned of their times, and what follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.session.options import Options
from strata.session.pace import SHORTEST, Pace

lengths = st.lists(st.integers(64, 8192), min_size=6, max_size=12, unique=True)


@given(lengths, st.floats(0, 3), st.floats(1e-5, 1e-2), st.floats(0.05, 1))
def test_a_line_is_found_and_kept_to(seen, fixed, each, wait):
    pace = Pace(wait)
    for tokens in seen:
        pace.add(tokens, fixed + each * tokens)
    rows = pace.rows(8192)
    took = fixed + each * rows
    assert rows == 8192 or rows % 64 == 0
    assert SHORTEST <= rows <= 8192
    if max(seen[-3:]) > 2 * min(seen[-3:]):  # lengths that differ little say little
        assert pace.line == (pytest.approx(fixed, rel=1e-3, abs=1e-3), pytest.approx(each, rel=1e-3))
        assert rows == SHORTEST or took <= 1.01 * max(wait, 2 * fixed)
        assert rows == 8192 or fixed + each * (rows + 64) >= 0.99 * max(wait, 2 * fixed)


def test_one_length_says_nothing_of_what_is_fixed():
    pace = Pace(0.25)
    assert pace.rows(4096) == 4096
    pace.add(4096, 1.0)
    assert pace.rows(4096) == 1024
    pace.add(1024, 0.8)  # a shorter one takes hardly less: others would wait for nothing
    assert pace.rows(4096) == 4096


def test_times_that_fall_with_the_length_are_noise():
    pace = Pace(0.25)
    pace.add(2048, 0.5)
    pace.add(1024, 0.6)
    assert pace.line == (pytest.approx(0.5556, rel=1e-3), 0.0)
    assert pace.rows(4096) == 4096


def test_a_wait_is_a_time():
    with pytest.raises(RequestError, match="seconds above 0, not -1"):
        Options(wait=-1)
