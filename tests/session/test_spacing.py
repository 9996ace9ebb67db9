import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.session.spacing import planned, spaced

BOUNDARIES = st.sets(st.integers(1, 20_000), min_size=1, max_size=60)


@given(BOUNDARIES, st.integers(1, 1024), st.data())
def test_the_newest_and_the_forced_stay_and_the_others_stand_apart(boundaries, step, data) -> None:
    forced = data.draw(st.sets(st.sampled_from(sorted(boundaries))))
    kept = spaced(boundaries, forced, step)
    assert kept == sorted(kept)
    assert kept[-1] == max(boundaries)
    assert forced <= set(kept) <= boundaries
    newest = kept[-1]
    for before, after in itertools.pairwise(kept):
        if before not in forced:
            assert after - before >= step
            assert newest - before >= 2 * (newest - after)


@given(BOUNDARIES, st.integers(1, 1024))
def test_thinning_twice_changes_nothing(boundaries, step) -> None:
    once = spaced(boundaries, (), step)
    assert spaced(once, (), step) == once


@given(st.integers(1, 1_000_000))
def test_a_long_conversation_keeps_few(length) -> None:
    assert len(planned(0, length, 512, ())) <= 3 + max(1, length // 512).bit_length()


@pytest.mark.parametrize("back", [1, 100, 511, 600, 5000, 40_000])
def test_going_back_reads_about_as_much_again_or_one_step(back) -> None:
    length, step = 100_000, 512
    kept = [0, *planned(0, length, step, ())]
    nearest = max(b for b in kept if b <= length - back)
    assert (length - back) - nearest <= max(2 * step, 2 * back)


def test_what_is_planned_lies_behind_what_is_held() -> None:
    assert planned(0, 100, 512, ()) == [100]
    assert planned(0, 1100, 512, (7, 1100, 1200)) == [7, 512, 1024, 1100]
    assert planned(600, 1700, 512, (7, 600, 601)) == [601, 1024, 1536, 1700]


@pytest.mark.parametrize("length", [2, 512, 513, 520, 1024, 5000])
def test_whoever_asks_the_same_again_reads_one_step_at_most(length) -> None:
    assert length - max(b for b in [0, *planned(0, length, 512, ())] if b < length) <= 512


def test_a_conversation_that_grows_turn_by_turn_keeps_few_and_near_ones() -> None:
    kept: list[int] = []
    for end in range(100, 60_000, 170):
        kept = spaced([*kept, end], (), 512)
        assert len(kept) <= 12
        gaps = [(end - a, end - b) for a, b in itertools.pairwise(kept)]
        assert all(a <= 4 * max(b, 512) + 512 for a, b in gaps), kept
