"""Costs as measured: the host's, through its own messages."""

import gc

import pytest

pytest.importorskip("triton")

from strata.ops.tiers import measure
from support.tiered import tiered

# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_the_host_is_measured_and_serves_the_next_window():
    made = tiered([])
    try:
        each, first = measure.host_costs(made.tier)
        assert 0 < each < 1e6
        assert first >= 0
        costs = measure.calibrate(made.tier)
        assert costs.host > 0
        assert made.tier.host.stats().messages >= 4 * measure.TIMES
        assert int(made.tier.state[0]) == made.tier.host.stats().messages  # the next number is a new one
        ((got, expected, _),) = made.window(1)[:1]
        made.tier.settled()
        assert got.tobytes() == expected.tobytes()
    finally:
        made.close()


def test_two_times_make_a_line():
    assert measure._line({1: 60.0, 8: 410.0}) == (50.0, 10.0)
    assert measure._line({1: 60.0, 8: 60.0}) == (0.01, 59.99)  # nothing that could be told from noise


def test_a_tier_that_nobody_holds_ends_its_threads():
    made = tiered([])
    host = made.tier.host
    assert host.running
    del made
    gc.collect()
    assert not host.running
