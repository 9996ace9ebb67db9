"""A thinking budget: always kept, and never in the way of the rest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strata.engine import Budget, Limit
from strata.engine.budget import broken

V, END, OPEN, CLOSE = 20, 9, 10, 11
CLOSING = (1, END, 2)


class Inner:
    """Allows what it is told to, and remembers what it heard."""

    def __init__(self, heard=()):
        self.heard = list(heard)
        self.finished = False

    def allowed(self):
        return np.arange(V) % 2 == 1

    def advance(self, token):
        self.heard.append(token)

    def forced(self):
        return [3]

    def fork(self):
        return Inner(self.heard)


def only(mask):
    return None if mask is None else np.flatnonzero(mask).tolist()


@given(st.integers(0, 6), st.lists(st.sampled_from([0, 3, 4, END]), max_size=30))
def test_the_block_is_closed_in_time(most, wanted) -> None:
    """What a model wants is taken where it is allowed; judged by the whole text."""
    budget = Budget(Limit(most, CLOSING, END), V)
    text = []
    for token in wanted:
        mask = budget.allowed()
        said = token if mask is None or mask[token] else int(np.flatnonzero(mask)[0])
        text.append(said)
        budget.advance(said)
    if END in text:
        assert text.index(END) <= most + 1
        if END in wanted[:most]:
            assert text == wanted, "who ends by himself is left alone"
    else:
        assert len(text) <= most + 1
    if len(text) > most + len(CLOSING) and END not in wanted[:most]:
        assert tuple(text[most : most + len(CLOSING)]) == CLOSING
        assert text[:most] == wanted[:most]
        assert budget.allowed() is None


def test_the_inner_constraint_hears_all_and_rules_the_rest() -> None:
    inner = Inner()
    budget = Budget(Limit(2, CLOSING, END), V, inner)
    assert only(budget.allowed()) == only(inner.allowed())
    for token in (5, 7, *CLOSING):
        budget.advance(token)
    assert inner.heard == [5, 7, *CLOSING]
    assert budget.forced() == [3]
    assert not budget.finished
    inner.finished = True
    assert budget.finished


def test_what_closes_the_block_is_forced() -> None:
    budget = Budget(Limit(1, CLOSING, END), V, Inner())
    budget.advance(5)
    assert budget.forced() == list(CLOSING)
    assert only(budget.allowed()) == [1]
    budget.advance(1)
    twin = budget.fork()
    twin.advance(END)
    assert only(budget.allowed()) == [END]
    assert only(twin.allowed()) == [2]
    assert not budget.finished


def test_a_call_that_was_begun_is_not_interrupted() -> None:
    budget = Budget(Limit(2, CLOSING, END, (OPEN, CLOSE)), V)
    for token in (5, OPEN, 5, 5, 5, 5):
        assert budget.allowed() is None
        budget.advance(token)
    budget.advance(CLOSE)
    assert only(budget.allowed()) == [1]


def test_no_budget_closes_at_once() -> None:
    assert only(Budget(Limit(0, CLOSING, END), V).allowed()) == [1]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.data())
def test_broken_is_inside_a_character(text, data) -> None:
    whole = text.encode()
    cut = data.draw(st.integers(0, len(whole)))
    try:
        whole[:cut].decode()
        inside = False
    except UnicodeDecodeError:
        inside = True
    assert broken(whole[:cut][-4:]) == inside


def test_no_character_is_broken_by_the_end() -> None:
    spelled = [bytes([byte]) for byte in range(256)]
    budget = Budget(Limit(2, CLOSING, END, None, spelled.__getitem__), 256)
    for byte in "a\U0001f600".encode():
        assert budget.allowed() is None
        budget.advance(byte)
    assert only(budget.allowed()) == [1]
    stuck = Budget(Limit(1, CLOSING, END, None, spelled.__getitem__), 256)
    for _ in range(20):
        if stuck.allowed() is not None:
            return
        stuck.advance(0xF0)
    raise AssertionError("a character that never comes holds the end up")
