"""Prompt lookup against a search through the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from strata.engine.drafting.lookup import LONGEST, PLACES, SHORTEST, Lookup

TEXTS = st.lists(st.integers(0, 3), max_size=90)


def slow_guess(tokens, count):
    """Every place, the longest shared suffix, of equals the latest."""
    best = (0, 0)
    for place in range(SHORTEST, len(tokens)):
        shared = 0
        while shared < min(place, LONGEST) and tokens[place - 1 - shared] == tokens[-1 - shared]:
            shared += 1
        if shared >= SHORTEST:
            best = max(best, (shared, place))
    return (tokens[best[1] :] * (count + 1))[:count] if best[0] else [], best[0]


@given(TEXTS, st.integers(0, 9))
def test_any_text_added_in_any_pieces(tokens, count):
    cut = len(tokens) // 2
    lookup = Lookup(tokens[:cut])
    lookup.guess(3)
    lookup.extend(tokens[cut:])
    assert len(lookup) == len(tokens)
    match = lookup.guess(count)
    assert (list(match.ids), match.shared) == slow_guess(tokens, count)


def test_a_copy_is_guessed_and_a_repetition_goes_on():
    assert Lookup([5, 6, 7, 8, 9, 1, 5, 6, 7]).guess(4) == ((8, 9, 1, 5), 3)
    assert Lookup([1, 2, 3, 1, 2, 3, 1, 2, 3]).guess(5) == ((1, 2, 3, 1, 2), 6)
    assert Lookup([1, 2, 3, 4]).guess(3) == ((), 0)
    assert Lookup([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2, 3]).guess(1) == ((5,), 3), "of equals the most recent"


def test_work_per_token_is_bounded():
    same = Lookup([7] * 20_000)
    assert len(list(same._places())) == PLACES
    assert same.guess(3) == ((7, 7, 7), LONGEST)
