"""Rates: case T04."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine import Speed


def test_t04_a_rate_is_true_from_the_first_token_on():
    """Fifty tokens a second, looked at every 10 ms."""
    speed, rates = Speed(), []
    for hundredth in range(1000):
        now = 5.0 + hundredth / 100
        if hundredth % 2:
            speed.add(now, 0.02, 1)
        rates.append(speed.rate(now))
    assert rates[0] == 0
    assert all(rate == pytest.approx(50) for rate in rates[1:])


def test_a_rate_ends_with_the_work():
    speed = Speed(span=2.0)
    speed.add(10.0, 1.0, 100)
    assert speed.rate(11.9) == 100
    assert speed.rate(12.1) == 0
    speed.add(30.0, 15.0, 300)  # one long pass is as long as it is
    assert speed.rate(30.5) == 20
    assert (speed.tokens, speed.seconds) == (400, 16.0)


def test_no_time_is_no_rate():
    speed = Speed()
    speed.add(1.0, 0.0, 5)
    speed.add(1.0, -3.0, 5)  # a clock that was set back
    assert speed.rate(1.0) == 0


works = st.lists(st.tuples(st.floats(0.001, 3), st.floats(0.001, 1), st.integers(0, 100)), max_size=40)


@given(works, st.floats(0, 3))
def test_against_the_sums_of_all_that_is_in_the_span(work, later):
    speed, now, done = Speed(2.0), 0.0, []
    for pause, seconds, tokens in work:
        now += pause + seconds
        speed.add(now, seconds, tokens)
        done.append((now, seconds, tokens))
    now += later
    seen = [(seconds, tokens) for end, seconds, tokens in done if end >= now - 2.0]
    wanted = sum(t for _, t in seen) / sum(s for s, _ in seen) if seen else 0.0
    assert speed.rate(now) == pytest.approx(wanted)
    assert speed.tokens == sum(tokens for *_, tokens in done)
