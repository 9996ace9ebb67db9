"""What does not fit is refused in words and changes nothing."""

import numpy as np
import pytest

from strata.memory.slots import Move, Rule, SlotCache, SlotError, moves_that_fit


def cache() -> SlotCache:
    return SlotCache([10, 20], [0, 1], [3, 3], experts=4)


@pytest.mark.parametrize(
    ("sizes", "classes", "slots", "experts", "words"),
    [
        ([10], [0], [1, 2], 4, "2 numbers of slots for 1 classes"),
        ([10], [], [1], 4, "0 layers"),
        ([10], [0], [1], 0, "of 0 experts"),
        ([10, 20], [0, 0], [1, 1], 4, "every class from 0 to 1"),
        ([10], [0, 1], [1], 4, r"layers of \[0, 1\]"),
        ([0], [0], [1], 4, "with .0. bytes"),
        ([10], [0], [-1], 4, "not -1"),
        ([10], [0], [1.5], 4, "not 1.5"),
        ([10], [0], [True], 4, "not True"),
    ],
)
def test_numbers_that_do_not_fit_together(sizes, classes, slots, experts, words) -> None:
    with pytest.raises(SlotError, match=words):
        SlotCache(sizes, classes, slots, experts=experts)


@pytest.mark.parametrize("pair", [(2, 0), (-1, 0), (0, 4), (0, -1)])
def test_experts_that_there_are_not(pair) -> None:
    c = cache()
    before = c.counts().copy()
    bad = np.array([(0, 1), pair])
    for call in (c.seen, lambda v: c.moves(1, v), lambda v: c.fetch(v, 1), lambda v: c.fetch(v[:1], 1, v)):
        with pytest.raises(SlotError, match=rf"no expert {pair[1]} of layer {pair[0]}"):
            call(bad)
    for move in (Move(*pair, 0), Move(0, 0, 0, pair)):
        with pytest.raises(SlotError, match="no expert"):
            c.begin(move)
    with pytest.raises(SlotError, match="no expert"):
        c.drop(*pair)
    assert np.array_equal(c.counts(), before)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 2, 2)])
def test_visits_of_another_shape(shape) -> None:
    with pytest.raises(SlotError, match="rows of layer and expert"):
        cache().seen(np.zeros(shape, np.int32))


def test_visits_are_whole_numbers_of_any_width() -> None:
    with pytest.raises(SlotError, match="not float64"):
        cache().seen(np.zeros((1, 2)))
    for dtype in (np.uint8, np.int16, np.uint16, np.int64, np.uint64):
        c = cache()
        assert c.seen(np.array([[1, 3]], dtype)) == 0
        assert c.counts()[1, 3] > 0
    for far in (2**32, 2**63 - 1, -(2**32)):  # which are 0, -1 and 0 as 32 bits
        with pytest.raises(SlotError, match="no expert"):
            cache().seen(np.array([[0, far]]))
    assert cache().seen(np.empty((0, 2))) == 0


def test_moves_that_are_out_of_date() -> None:
    c = cache()
    first, second = c.moves(1)[0], c.moves(1)[0]
    assert first == second
    c.begin(first)
    for move in (
        second,
        first._replace(slot=3),
        first._replace(slot=-1),
        first._replace(slot=1, out=(0, 3)),
        first._replace(slot=1),
        first._replace(slot=1, expert=1, generation=2),
    ):
        with pytest.raises(SlotError, match="does not fit"):
            c.begin(move)
    c.landed(first)
    with pytest.raises(SlotError, match="does not fit"):
        c.begin(first._replace(slot=1))


def test_heat_of_another_shape() -> None:
    with pytest.raises(SlotError, match=r"shape \(4, 2\), and \(2, 4\) was expected"):
        cache().turn(np.zeros((4, 2)))


def test_a_late_answer_of_an_earlier_copy() -> None:
    c = cache()
    first = c.moves(1)[0]
    c.begin(first)
    c.failed(first)
    second = c.moves(1)[0]
    assert second == first._replace(generation=2)
    c.begin(second)
    with pytest.raises(SlotError, match="not under way"):
        c.landed(first)
    assert c.held == (0, 0)
    assert c.landed(second)


def test_the_table_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        cache().slot_of[0, 0] = 1


@pytest.mark.parametrize(("class_", "slots"), [(2, 1), (-1, 1), (0, -1), (0, 1.0)])
def test_sizes_that_there_are_not(class_, slots) -> None:
    with pytest.raises(SlotError):
        cache().resize(class_, slots)


@pytest.mark.parametrize(
    "values", [{"decay": 1.1}, {"decay": -0.1}, {"slow": 2}, {"share": -1}, {"margin": float("nan")}, {"margin": -1}]
)
def test_rules_out_of_range(values) -> None:
    with pytest.raises(SlotError, match=f"{next(iter(values))} of the adaptive rule"):
        Rule(**values)


def test_counts_stay_finite_over_a_long_time() -> None:
    c = SlotCache([10], [0], [2], experts=4, rule=Rule(decay=0.5, slow=0.9))
    for _ in range(2000):  # 0.5 ** -2000 is beyond float64
        c.seen(np.array([[0, 1]]))
    c.seen(np.array([[0, 2]]))
    assert c.counts()[0, 1] == pytest.approx(1.0 + 10 * c.rule.share, rel=0.2)
    assert np.isfinite(c.counts()).all()


def test_moves_keep_to_their_share_of_the_link() -> None:
    assert moves_that_fit(1_750_000, 25e9, 0.012) == 17
    assert moves_that_fit(4_000_000, 25e9, 0.012) == 7
    assert moves_that_fit(4_000_000, 1e6, 0.012) == 1
    with pytest.raises(SlotError, match="no moves fit"):
        moves_that_fit(0, 25e9, 0.012)
