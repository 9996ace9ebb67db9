"""Drafts with misses priced in never cost what they should not, on a machine that misses a lot."""

from dataclasses import replace

import numpy as np
import pytest

from strata.lab.routing import drafting
from strata.lab.routing.drafting import RULES, Text, play
from strata.lab.routing.generator import Character, Routing
from strata.lab.routing.machine import EXPERT, Machine

# A small model whose experts are so large that misses weigh as much as they do with 48 layers.
MACHINE = Machine("small", 0.12, 672e9 / 24, 40e9 / 24, 25e9 / 24, shared=True)


@pytest.fixture(scope="module")
def small() -> Text:
    routing = Routing(Character(layers=2, experts=128, topk=10), seed=2)
    right, wrong = routing.conversation(0).forks(2000)
    return Text(right, wrong, np.random.default_rng(1).random(2000), np.arange(256), 128)


def test_a_wrong_guess_is_another_row(small) -> None:
    same = np.mean([len(np.intersect1d(*pair)) for pair in zip(small.right[:, 0], small.wrong[:, 0], strict=True)])
    assert 1 < same < 9, "a wrong guess visits some of the right one's experts"


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_drafts_do_not_make_it_slower(small, monkeypatch, rate) -> None:
    monkeypatch.setattr(drafting, "WARM", 100)
    none, priced = (play(small, MACHINE, lambda _: rate, RULES[name]) for name in ("none", "priced"))
    assert none.tokens == 1.0
    assert priced.speed > 0.98 * none.speed
    if rate == 0.9:
        assert priced.speed > 1.1 * none.speed
    if rate == 0.0:
        assert play(small, MACHINE, lambda _: rate, RULES["always 3"]).speed < 0.8 * none.speed


def test_a_window_takes_what_its_slower_half_takes() -> None:
    machine = replace(MACHINE, card=1e12, cpu=40e9, link=20e9, shared=False)
    assert machine.miss == EXPERT / 40e9
    all_hits, all_misses = machine.window(1, 100, 0), machine.window(1, 100, 100)
    assert all_misses - all_hits == pytest.approx(100 * EXPERT * (1 / 40e9 - 1 / 1e12))
    assert machine.window(1, 100, 1) <= all_hits, "one miss hides behind the hits"
    assert replace(machine, shared=True).miss == EXPERT / 60e9
