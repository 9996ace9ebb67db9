"""The sign of over-committed video memory, and what is none."""

import random

import pytest

from strata.memory.budget import Detector
from strata.memory.budget.overcommit import SPAN


def feed(detector: Detector, hits: float, speed: float, count: int = 4 * SPAN, *, noise: float = 0.15, seed: int = 0):
    """Windows about as given; the last verdict."""
    rng = random.Random(seed)
    found = None
    for _ in range(count):
        found = detector.seen(hits + rng.uniform(-0.03, 0.03), speed * rng.uniform(1 - noise, 1 + noise))
    return found


def test_hits_go_up_and_speed_goes_down() -> None:
    detector = Detector()
    assert feed(detector, 0.60, 40) is None
    found = feed(detector, 0.85, 6)
    assert found is not None
    assert found.hits == pytest.approx(0.85, abs=0.03)
    assert found.best_speed == pytest.approx(40, rel=0.15)
    assert "video memory seems to be over-committed: 8" in str(found)
    assert "windows take 6" in str(found) or "windows take 7" in str(found)
    assert "--headroom" in str(found)


def test_slots_that_a_long_prompt_borrows_are_no_sign_of_it() -> None:
    """Fewer hits and slower windows, then as many as before beside moves that fill what came back."""
    detector = Detector()
    for _ in range(3):
        for hits, speed in ((0.86, 77), (0.80, 62), (0.83, 64), (0.86, 77)):
            assert feed(detector, hits, speed, 2 * SPAN) is None


def test_it_says_so_until_it_is_over() -> None:
    detector = Detector()
    feed(detector, 0.7, 40)
    assert feed(detector, 0.7, 10) is not None
    assert feed(detector, 0.7, 10) is not None
    assert feed(detector, 0.7, 40) is None


@pytest.mark.parametrize(
    ("hits", "speed"),
    [(0.30, 15), (0.55, 30), (0.60, 33), (0.9, 60)],
    ids=["fewer hits", "somewhat fewer", "a longer context", "better"],
)
def test_what_is_no_sign(hits, speed) -> None:
    detector = Detector()
    assert feed(detector, 0.60, 40) is None
    assert feed(detector, hits, speed) is None


def test_a_few_slow_windows_are_none() -> None:
    detector = Detector()
    feed(detector, 0.6, 40)
    assert all(
        feed(detector, 0.6, 2, 3, seed=i) is None and feed(detector, 0.6, 40, 5, seed=i) is None for i in range(20)
    )


def test_too_little_was_seen() -> None:
    detector = Detector()
    assert feed(detector, 0.6, 40, SPAN - 1) is None
    assert feed(detector, 0.9, 2, SPAN // 4) is None


def test_another_size_of_the_cache_is_another_matter() -> None:
    detector = Detector()
    feed(detector, 0.6, 40)
    detector.reset()
    assert feed(detector, 0.6, 10) is None, "this is how fast it is now"


def test_a_bad_start_is_found_out_by_the_better_time_that_follows() -> None:
    detector = Detector()
    assert feed(detector, 0.8, 8) is None, "nothing is known yet"
    assert feed(detector, 0.7, 50) is None
    assert feed(detector, 0.8, 8) is not None


def test_what_is_remembered_stays_small() -> None:
    detector = Detector()
    rng = random.Random(1)
    for _ in range(20_000):
        hits = rng.random()
        detector.seen(hits, 10 + 50 * hits)
    assert len(detector._best) <= 101
