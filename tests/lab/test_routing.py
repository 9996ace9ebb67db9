"""Made-up routing has the statistics it promises, and policies do what their names say."""

from itertools import islice

import numpy as np
import pytest

from strata.lab.routing.compare import Case, case, policies, score
from strata.lab.routing.generator import Character, Routing
from strata.lab.routing.policies.oracle import NEVER, next_visits
from strata.lab.routing.policies.policy import Setting
from strata.lab.routing.windows import visits, windows

SMALL = Character(layers=4, experts=64, topk=4, length=300.0)


@pytest.fixture(scope="module")
def small() -> Case:
    routing = Routing(SMALL, seed=3)
    return case(routing.rows(2000, first=100), routing.rows(6000), 4, 64)


def test_the_same_seed_gives_the_same_rows() -> None:
    first, second = (Routing(SMALL, seed=5).conversation(2) for _ in range(2))
    whole = first.rows(40)
    assert np.array_equal(whole, second.rows(40))
    assert not np.array_equal(whole, Routing(SMALL, seed=6).conversation(2).rows(40))
    assert not np.array_equal(whole, Routing(SMALL, seed=5).conversation(3).rows(40))
    assert whole.dtype == np.int16
    assert all(len(set(layer)) == 4 for row in whole.tolist() for layer in row)


def test_rows_come_as_a_stream() -> None:
    pieces = list(islice(Routing(SMALL).rows(1 << 40), 5))
    assert len(pieces) == 5
    assert sum(len(piece) for _, piece in Routing(SMALL).rows(777)) == 777


def test_windows_visit_what_their_rows_visit() -> None:
    rows = np.array([[[1, 2], [0, 3]], [[2, 3], [0, 3]]], np.int16)
    assert visits(rows, 4).tolist() == [[0, 1, 1], [0, 2, 2], [0, 3, 1], [1, 0, 2], [1, 3, 2]]
    pieces = [(0, rows), (0, rows[:1]), (1, rows)]
    assert [len(each) for each in windows(pieces, 2, 4)] == [5, 4, 5]
    assert [each[:, 2].sum() for each in windows(pieces, 4, 4)] == [12, 8]


def test_the_union_of_a_window_grows_as_published() -> None:
    """1.75, 2.4 and 3.05 times one row's experts for 2, 3 and 4 rows."""
    rows = Routing().conversation(1).rows(240)
    for count, published in ((2, 1.75), (3, 2.4), (4, 3.05)):
        union = np.mean([len(visits(rows[i : i + count], 512)) for i in range(0, 240, count)]) / 480
        assert union == pytest.approx(published, abs=0.08), count


def test_next_visits() -> None:
    found = next_visits([np.array(keys) for keys in ([0, 1], [1, 2], [0])], 3)
    assert [each.tolist() for each in found] == [[2, 1], [NEVER, NEVER], [NEVER]]


@pytest.mark.parametrize("name", [*policies()])
def test_no_policy_keeps_more_than_fits(small, name) -> None:
    for slots in (0, 1, 17, 256):
        policy = policies()[name](Setting(4, 64, slots, 8), small)
        for keys in small.windows[:60]:
            hits, moves = policy.window(keys)
            assert 0 <= hits <= min(slots, len(keys))
            assert moves >= 0
        assert hits == len(keys) if slots == 256 else hits < len(keys)


def test_what_is_kept_follows_from_the_policy(small) -> None:
    scores = {name: score(name, 0.2, 8, small) for name in policies()}
    assert scores["static"].moves == 0
    assert all(each.moves <= 8 for name, each in scores.items() if name in {"counted", "lru", "lfu"})
    best = max(each.hits for name, each in scores.items() if name != "oracle")
    assert scores["oracle"].hits > best
    assert scores["counted"].hits > scores["static"].hits + 0.02
    assert scores["counted"].hits > best - 0.03
