"""Costs of both sides at work together."""

import numpy as np
import pytest

pytest.importorskip("triton")

from strata.experts.misses import Costs, shares
from strata.ops.tiers.balance import Sample, balanced, fitted
from support.tiered import tiered

pytestmark = pytest.mark.usefixtures("unchecked")

ALONE = Costs(host=40.0, link=56.0, host_first=20.0, link_first=30.0)
TOGETHER = Costs(host=51.0, link=58.0, host_first=45.0, link_first=60.0)


def samples(costs: Costs, noise: float = 0.0) -> list[Sample]:
    dice, table = np.random.default_rng(1), shares(ALONE, 40, 40)
    ways = [
        (missing, link)
        for missing in (2, 4, 6, 8, 10, 20, 30, 40)
        for link in sorted({max(0, min(missing, int(table[missing]) + way)) for way in (-4, -2, -1, 0, 1, 2, 4)})
    ]
    return [Sample(m, link, costs.waits(m, link) * (1 + noise * dice.standard_normal())) for m, link in ways]


def test_times_tell_what_both_sides_cost_beside_each_other():
    found = fitted(ALONE, samples(TOGETHER))
    for name in ("host", "link", "host_first", "link_first"):
        assert getattr(found, name) == pytest.approx(getattr(TOGETHER, name), rel=1e-6), name


def test_noise_does_not_move_a_share_by_more_than_one():
    found = fitted(ALONE, samples(TOGETHER, noise=0.03))
    near, best = shares(found, 40, 40), shares(TOGETHER, 40, 40)
    assert (abs(near - best) <= 1).all()
    assert (shares(ALONE, 40, 40) != best).any(), "nothing would have been to be found"


def test_a_side_that_is_never_the_slower_one_keeps_what_it_had():
    slow = Costs(host=500.0, link=1.0)
    some = [Sample(missing, 0, slow.waits(missing, 0)) for missing in (1, 2, 3, 4)]
    found = fitted(ALONE, some)
    assert (found.link, found.link_first) == (ALONE.link, ALONE.link_first)
    assert found.host == pytest.approx(500.0)


def test_a_line_that_falls_is_no_line():
    some = [Sample(missing, 0, 1000.0 - missing) for missing in (1, 2, 3, 4)]
    assert fitted(ALONE, some) == ALONE


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what nobody computed is quantised with the rest
def test_layers_are_measured_and_the_next_window_is_right():
    made = tiered([(0, 1), (1, 3)])
    try:
        made.window(1)
        made.tier.settled()
        before, met, total = made.tier.split.clone(), made.tier.host.stats().messages, made.tier.total
        costs = balanced(made.tier, made.tier.options.costs, times=1, layers=2)
        assert min(costs.host, costs.link) > 0
        assert made.tier.host.stats().messages > met
        assert (made.tier.split == before).all(), "shares are put back"
        for got, expected, _ in made.window(2):
            assert got.tobytes() == expected.tobytes()
        made.tier.settled()
        assert made.tier.total - total == made.tier.last, "no window has met what was measured"
        assert made.tier.last.layers == 2
        assert min(made.tier.last.resident, made.tier.last.link, made.tier.last.host) >= 0
    finally:
        made.close()
