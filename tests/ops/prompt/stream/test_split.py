"""What missing experts cost, and how long passes are."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strata.ops.prompt.stream.schedule import Schedule
from strata.ops.prompt.stream.share import FARTHEST, Share
from strata.ops.prompt.stream.split import BESIDE, Costs, all_at_once, pass_rows, ring_buffers
from strata.ops.tiers.sizes import BUFFERS, LANDING


def test_share_of_visited_experts_where_rows_choose_evenly():
    share = Share(10, 512)
    share.times = 100.0
    assert share.of(1) == pytest.approx(10 / 512)
    assert 0.70 < share.of(64) < 0.73  # 72% in the literature of limits
    assert share.of(256) > 0.99
    assert Share(4, 4).of(100) == 1.0


@pytest.mark.parametrize(("rows", "low", "high"), [(17, 0.07, 0.08), (200, 0.37, 0.40), (1000, 0.66, 0.69)])
def test_what_is_believed_at_first_is_what_made_up_routing_visits(rows, low, high):
    """Of what is missing beside 28 and 20% of the experts: bench/results/prompt-routing.json."""
    assert low - 0.05 < Share(10, 512).of(rows) < high + 0.04


@given(times=st.floats(0.1, 3.0), rows=st.lists(st.integers(1, 300), min_size=20, max_size=20))
def test_what_rows_visit_is_learned(times, rows):
    share, true, missing = Share(10, 512), Share(10, 512), 200_000
    true.times = times
    for count in rows:
        share.met(count, round(missing * (1 - (1 - 10 / 512) ** (times * count**0.65))), missing)
    assert share.times == pytest.approx(times, rel=0.1)
    assert share.of(100) == pytest.approx(true.of(100), rel=0.1)


def test_one_odd_pass_is_no_rule():
    share = Share(10, 512)
    before = share.times
    share.met(4096, 10, 20_000)
    assert share.times >= before / FARTHEST
    share.met(1, 0, 0)  # nothing was missing: nothing is known
    after = share.times
    share.met(1000, 500, 500)  # all were visited, which few would do as well: it is not less than was believed
    assert share.times >= after


def test_long_passes_stream_all_and_short_ones_ask():
    costs, share = Costs(link=40.0), Share(10, 512)
    missing = [500] * 48
    assert all_at_once(4096, share.of(4096), missing, costs)
    assert not all_at_once(17, share.of(17), missing, costs)
    assert all_at_once(17, share.of(17), [0] * 48, costs)
    assert not all_at_once(200, share.of(200), missing, costs)
    share.times = 100.0
    assert all_at_once(200, share.of(200), missing, costs)


@given(most=st.integers(1, 256).map(lambda n: 64 * n), missing=st.integers(0, 24_576), link=st.floats(1, 100))
@example(most=2432, missing=1280, link=64.765625)
def test_passes_hide_the_link_as_far_as_memory_goes(most, missing, link):
    costs = Costs(link=link)
    found = pass_rows(most, costs, missing)
    assert found % 64 == 0
    assert 64 <= found <= most
    assert found == most or found * costs.row >= 2 * link * missing
    assert found <= 2048 or (found - 64) * costs.row <= 2 * link * missing


def test_what_lies_on_the_device_needs_no_long_passes():
    assert pass_rows(8192, Costs(link=40.0), 24_576) == 8192
    assert pass_rows(8192, Costs(link=40.0), 0) == 2048
    assert pass_rows(4096, Costs(link=40.0), 24_576) == 4096
    assert 2048 < pass_rows(8192, Costs(link=40.0), 3000) < 4096


MAKING = 4.0
"""Microseconds of an expert whose blocks have landed, until it is in a slot."""


def simulated(rows, ring, landing, costs, *, missing=512, layers=48, most=32):
    """Seconds of a pass that streams everything, by the rules of the schedule; expert's products are what is left."""
    between = BESIDE * costs.row * rows / layers
    each = (1 - BESIDE) * costs.row * rows / layers / missing
    schedule, landed, made, ended, now = Schedule(ring, most), 0.0, [], [], 0.0
    for layer in range(layers):
        schedule.add(layer, range(missing))
    for layer in range(layers):
        now += between
        for group in schedule.groups(layer):
            left = made[group.number - landing] if group.number >= landing else 0.0
            landed = max(landed, left) + costs.link * len(group.experts)
            free = ended[group.after] if group.after >= 0 else 0.0
            made.append(max(landed, free, made[-1] if made else 0.0) + MAKING * len(group.experts))
            now = max(now, made[-1]) + each * len(group.experts)
            ended.append(now)
            schedule.ready()
            schedule.computed(group)
    return now / 1e6


@pytest.mark.parametrize(
    ("rows", "link", "row"), [(4096, 39.3, 68.4), (8192, 39.3, 68.4), (4096, 86.0, 400.0), (2048, 86.0, 450.0)]
)
@pytest.mark.parametrize("landing", [2, 3, 4])
def test_a_ring_as_wide_as_said_never_keeps_the_link_waiting(rows, link, row, landing):
    """On PCIe 5 and an H200's compute, and on PCIe 4 and smaller cards'."""
    costs = Costs(link=link, row=row)
    bound = 48 * 512 * costs.link / 1e6
    wide = ring_buffers(rows, 48, 32, landing, costs)
    assert simulated(rows, wide, landing, costs) < 1.01 * bound
    if wide > 64:
        assert simulated(rows, wide - 64, landing, costs) > 1.01 * bound


def test_the_ring_as_it_is_hides_an_h200s_longest_pass():
    """Ring and landing places, with nothing borrowed; neither with fewer of them."""
    costs = Costs(link=39.3, row=68.4)
    bound = 48 * 512 * costs.link / 1e6
    assert ring_buffers(8192, 48, BUFFERS // 3, LANDING, costs) in range(BUFFERS, BUFFERS + BUFFERS // 3 + 1)
    assert simulated(8192, BUFFERS, LANDING, costs) < 1.01 * bound
    assert simulated(8192, BUFFERS, LANDING - 1, costs) > 1.04 * bound
    assert simulated(8192, BUFFERS // 3 * 2, LANDING, costs) > 1.04 * bound
