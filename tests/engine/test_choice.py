import math

import numpy as np
import pytest

from strata.engine import NotFiniteError, Sampling, choose
from strata.engine.choice import uniform
from support.philox import philox

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
HOT = {"temperature": 1.0, "seed": 11}


def drawn(n: int, logits: np.ndarray = LOGITS, **sampling) -> list[int]:
    settings = Sampling(**(HOT | sampling))
    return [choose(logits, settings, position).id for position in range(n)]


def test_the_reference_generator_gives_the_published_vectors() -> None:
    # Random123 1.14, kat_vectors
    full = (1 << 64) - 1
    pi = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89)
    assert philox((0,) * 4, (0, 0))[:2] == (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC)
    assert philox((full,) * 4, (full,) * 2)[:2] == (0x87B092C3013FE90B, 0x438C3C67BE8D0224)
    assert philox(pi, (0x452821E638D01377, 0xBE5466CF34E90C6C))[:2] == (0xA528F45403E61D95, 0x38C72DBD566E9788)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**64 - 1])
@pytest.mark.parametrize("position", [0, 1, 2, 511, 2**40])
def test_a_draw_is_the_generators_first_word_for_seed_and_position(seed, position) -> None:
    assert uniform(seed, position) == (philox((position, 0, 0, 0), (seed, 0))[0] >> 11) / 2**53


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert choose(np.array([0, 3, 1, 3], np.float32), Sampling(), 5).id == 1


def test_logprob_is_that_of_the_unfiltered_distribution() -> None:
    # float32 logits of magnitude 3 are rounded by up to 2**-23; the sum in float64 adds nothing visible.
    for settings in (Sampling(), Sampling(temperature=9.0, top_k=1, seed=3)):
        assert choose(LOGITS, settings, 0).logprob == pytest.approx(math.log(0.4), abs=2**-22)


def test_banned_ids_are_never_chosen_and_have_no_probability() -> None:
    greedy = choose(LOGITS, Sampling(), 0, [1])
    assert greedy.id == 3
    assert greedy.logprob == pytest.approx(math.log(0.25 / 0.6), abs=2**-22)
    settings = Sampling(temperature=100.0, top_k=4)
    assert {choose(LOGITS, settings, i, [1, 3]).id for i in range(200)} == {0, 2, 4}


@pytest.mark.parametrize(("sampling", "expected"), [
    ({}, [0.1, 0.4, 0.05, 0.25, 0.2]),
    ({"temperature": 0.5}, [0.01, 0.16, 0.0025, 0.0625, 0.04]),
    ({"top_k": 3}, [0, 0.4, 0, 0.25, 0.2]),
    ({"top_k": 10**9}, [0.1, 0.4, 0.05, 0.25, 0.2]),  # case G02
    ({"top_p": 0.7}, [0, 0.4, 0, 0.25, 0.2]),
    ({"top_k": 3, "top_p": 0.7}, [0, 0.4, 0, 0.25, 0]),  # 0.65 of 0.85 is enough
    ({"min_p": 0.3}, [0, 0.4, 0, 0.25, 0.2]),
    ({"temperature": 0.5, "min_p": 0.3}, [0, 0.16, 0, 0.0625, 0]),
    ({"top_k": -1, "top_p": 1.0, "min_p": 0.0}, [0.1, 0.4, 0.05, 0.25, 0.2]),
], ids=str)  # fmt: skip
def test_draws_follow_the_filtered_distribution(sampling, expected) -> None:
    n, p = 4000, np.array(expected) / sum(expected)
    counts = np.bincount(drawn(n, **sampling), minlength=5)
    assert not counts[p == 0].any()
    p, counts = p[p > 0], counts[p > 0]
    chi_square = float(((counts - n * p) ** 2 / (n * p)).sum())
    # Upper 1e-5 points of chi-square with 1 to 4 degrees of freedom. The seed is fixed, so the test never flickers.
    assert chi_square < [19.5, 23.0, 25.9, 28.5][len(p) - 2]


@pytest.mark.parametrize(
    "sampling", [{"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 1e-9}, {"temperature": 5e-324}], ids=str
)
def test_the_edges_equal_greedy(sampling) -> None:  # case G01
    assert set(drawn(50, **sampling)) == {1}


def test_equal_logits_leave_the_filters_by_higher_id() -> None:
    flat = np.zeros(6, np.float32)
    assert set(drawn(200, flat, top_k=3)) == {0, 1, 2}
    assert set(drawn(200, flat, top_p=0.4)) == {0, 1, 2}
    assert set(drawn(50, flat, top_k=1)) == {0}
    assert set(drawn(200, flat, min_p=1)) == set(range(6))


def test_a_draw_depends_on_seed_and_position_alone() -> None:  # case G04
    first = drawn(64)
    again = [choose(LOGITS, Sampling(**HOT), position).id for position in reversed(range(64))][::-1]
    assert again == first
    assert drawn(64, seed=12) != first


def test_a_token_without_weight_is_never_drawn(monkeypatch) -> None:
    logits = np.array([-np.float32(3e38), 0, -np.float32(3e38)], np.float32)
    for draw in (0.0, 1 - 2**-53):
        monkeypatch.setattr("strata.engine.choice.uniform", lambda *_, draw=draw: draw)
        assert choose(logits, Sampling(temperature=1.0), 0).id == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=repr)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0)], ids=["greedy", "sampled"])
def test_logits_that_are_not_finite_end_the_request(value, sampling) -> None:  # case P02
    logits = LOGITS.copy()
    logits[2] = value
    with pytest.raises(NotFiniteError, match=f"{value} for token 2 at position 17"):
        choose(logits, sampling, 17)
    assert choose(logits, sampling, 17, [2]).id != 2  # what padding rows hold does not matter
