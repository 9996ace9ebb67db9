"""Which source guesses: the grammar, a lookup or the draft head; and what a lookup without a head does."""

import pytest

from strata.engine import Drafting
from strata.engine.drafting.drafter import Guesser
from strata.engine.drafting.timings import Timings
from strata.model.mtp import Chain

REPEATED = [*range(100, 130), 1, *range(100, 120)]


class Head:
    """A network whose draft head always says 7, 8, 9, ..."""

    def __init__(self):
        self.calls = []

    def guess(self, state, newest, steps, floor):  # noqa: ARG002  # the network's signature
        self.calls.append(steps)
        return Chain(tuple(range(7, 7 + steps)), steps)


def known():
    timings = Timings()
    for rows in range(1, 9):
        timings.computed(rows, 1.0 + 0.1 * (rows - 1))
    timings.drafted(1, 0.25)
    return timings


def guesser(tokens, head=True, **options):
    network = Head()
    return Guesser(Drafting(7, measured=True, head=head, **options), network, tokens, timings=known()), network


def test_a_long_match_goes_before_the_head_as_it_costs_no_steps():
    drafter, head = guesser(REPEATED)
    assert drafter.guess(None, [120], 7) == ((121, 122, 123, 124, 125, 126, 127), "lookup")
    assert head.calls == []


def test_a_short_match_gives_way_to_a_head_that_is_mostly_right():
    drafter, _ = guesser([1, 2, 3, 4, 5, 6])
    for token in (20, 21, 22, 23):
        drafter.learn(len(drafter.guess(None, [token], 7).ids), 7, 1.0)
    assert drafter.guess(None, [1, 2, 3], 7).source == "head"


def test_without_matches_or_with_lookup_off_the_head_guesses():
    assert guesser([5, 6, 7])[0].guess(None, [8], 7).source == "head"
    assert guesser(REPEATED, lookup=False)[0].guess(None, [120], 7).source == "head"


def test_a_model_without_a_head_still_looks_up():
    drafter, head = guesser(REPEATED, head=False)
    assert drafter.guess(None, [120], 3) == ((121, 122, 123), "lookup")
    assert guesser([5, 6, 7], head=False)[0].guess(None, [8], 7) == ((), "")
    assert head.calls == []


def test_matches_that_mislead_give_way_to_the_head():
    drafter, _ = guesser(REPEATED)
    tokens, sources = [120], []
    for _ in range(17):
        guesses = drafter.guess(None, tokens, 7)
        sources.append(guesses.source)
        drafter.learn(len(guesses.ids), 0 if guesses.source == "lookup" else len(guesses.ids), 1.0)
        tokens = [200, *range(100, 121)]  # a match as long as the last, every time
    assert sources[0] == "lookup"
    assert sources[-1] == "head"
    assert sources.count("lookup") < 16


@pytest.mark.parametrize("name", ["measured", "lookup", "head"])
def test_switches_are_switches(name):
    from strata.errors import RequestError

    with pytest.raises(RequestError, match=f"{name} must be true or false"):
        Drafting(3, **{name: 1})
