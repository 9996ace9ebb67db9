"""Stop strings against plain search in the whole text (cases H01, H03, H05)."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.text import Stops


def cut(text, strings):
    """The definition: of the first place of each string, the one that ends first; then the longest."""
    found = [(text.find(s) + len(s), text.find(s), s) for s in strings if s in text]
    return (text[: min(found)[1]], min(found)[2]) if found else (text, None)


def streamed(pieces, strings):
    stops = Stops(strings)
    shown = "".join(stops.push(piece) for piece in pieces)
    return shown + stops.flush(), stops.hit


TEXTS = st.text("ab", max_size=30) | st.text("abc🙂", max_size=40)
STRINGS = st.lists(st.text("ab", min_size=1, max_size=6) | st.text("abc🙂", min_size=1, max_size=3), max_size=5)


@settings(max_examples=1500, deadline=None)
@given(TEXTS, STRINGS, st.lists(st.integers(0, 40), max_size=12))
def test_any_cuts_give_what_a_search_in_the_whole_text_gives(text, strings, cuts):
    places = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert streamed(pieces, strings) == cut(text, strings)


@settings(max_examples=500, deadline=None)
@given(TEXTS, STRINGS)
def test_exactly_what_may_become_a_stop_string_waits(text, strings):
    stops, shown, read = Stops(strings), "", ""
    for character in text:
        shown += stops.push(character)
        read += character
        if stops.hit is not None:
            assert (shown, stops.hit) == cut(read, strings), "at the very character that completes it"
            assert stops.push("more") == stops.flush() == ""
            return
        waiting = max((n for s in strings for n in range(len(s)) if read.endswith(s[:n])), default=0)
        assert shown == read[: len(read) - waiting]


def test_the_cases_as_they_are_written():
    assert streamed("alpha bravo charlie", ["vo ch"]) == ("alpha bra", "vo ch")  # H01, one byte a token
    for strings in (["ab", "abc"], ["abc", "ab"]):
        assert streamed("xxabcd", strings) == ("xx", "ab")
    assert streamed(["say <|e"], ["<|eot|>"]) == ("say <|e", None)  # H03
    assert streamed("abca", ["abcd"]) == ("abca", None)
    assert streamed(["hello world"], "wor") == streamed(["hello world"], ["wor"]) == ("hello ", "wor")  # H05
    assert streamed(["hello world"], None) == streamed(["hello world"], []) == ("hello world", None)
    assert streamed(["hello world"], ["1", "2", "3", "4", "x" * 10_000]) == ("hello world", None)


def test_of_strings_complete_at_the_same_character_the_longest_counts():
    assert streamed("abcd", ["d", "bcd", "cd"]) == ("a", "bcd")
    assert streamed("abcd", ["abcde", "bc"]) == ("a", "bc")


@pytest.mark.parametrize(("strings", "wrong"), [
    ("", "stop is an empty text"),
    ([""], r"stop\[0\] is an empty text"),
    (["a", ""], r"stop\[1\] is an empty text"),
    ([None], r"stop\[0\] must be a text, not None"),
    ([1], r"stop\[0\] must be a text, not 1"),
    (5, "stop must be a text or a list of texts, not 5"),
    (True, "stop must be a text or a list"),
    (b"ab", "stop must be a text or a list"),
    ({"a": 1}, "stop must be a text or a list"),
], ids=repr)  # fmt: skip
def test_anything_else_is_refused(strings, wrong):
    with pytest.raises(RequestError, match=f"^{wrong}"):
        Stops(strings)


def test_a_character_costs_the_same_at_the_end_of_a_long_text():
    """Case F09: 40,000 characters that keep a 10,000 character string nearly complete."""
    stops = Stops(["a" * 10_000 + "b", "ab" * 500])
    began = time.process_time()
    text = "".join(stops.push("a" * 100) for _ in range(400)) + stops.flush()
    assert text == "a" * 40_000
    # Quadratic work would be 4e8 comparisons, minutes; linear work is tens of milliseconds.
    assert time.process_time() - began < 5
