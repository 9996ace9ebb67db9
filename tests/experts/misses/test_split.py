"""The table of shares is the best there is, for any costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.experts.errors import KernelError
from strata.experts.misses import Costs, shares

each = st.floats(0.01, 1000)
first = st.floats(0, 1000)


@given(each, each, first, first, st.integers(0, 80), st.integers(0, 40))
def test_no_other_split_waits_less(host, link, host_first, link_first, most, room):
    costs = Costs(host, link, host_first, link_first)
    table = shares(costs, most, room)
    assert table.dtype == np.int32
    assert len(table) == most + 1
    for missing, by_link in enumerate(table.tolist()):
        best = min(costs.waits(missing, other) for other in range(min(missing, room) + 1))
        assert costs.waits(missing, by_link) == pytest.approx(best, rel=1e-9)
    steps = np.diff(table)
    assert ((steps == 0) | (steps == 1)).all()  # one more never takes an expert from either side


def test_a_layer_waits_for_whoever_takes_longer():
    costs = Costs(50, 45, 8, 6)
    assert costs.waits(10, 5) == 8 + 250
    assert costs.waits(10, 9) == 6 + 405
    assert costs.waits(3, 3) == 6 + 135  # nobody asked the host
    assert costs.waits(3, 0) == 8 + 150
    assert costs.waits(0, 0) == 0


def test_shares_follow_the_costs():
    assert shares(Costs(50, 50), 6, 16).tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert shares(Costs(100, 25), 6, 16).tolist() == [0, 1, 2, 3, 3, 4, 5]
    assert shares(Costs(10, 1000), 6, 16).tolist() == [0] * 7
    assert shares(Costs(1000, 10), 6, 3).tolist() == [0, 1, 2, 3, 3, 3, 3]  # no more room
    assert shares(Costs(50, 50), 3, 0).tolist() == [0] * 4
    assert shares(Costs(50, 50, host_first=500), 4, 16).tolist() == [0, 1, 2, 3, 4]  # not worth asking the host


def test_what_is_no_cost_is_refused():
    for wrong in (
        {"host": 0.0, "link": 1.0},
        {"host": 1.0, "link": np.nan},
        {"host": 1.0, "link": 1.0, "link_first": -1.0},
    ):
        with pytest.raises(KernelError, match="costs are positive"):
            Costs(**wrong)
