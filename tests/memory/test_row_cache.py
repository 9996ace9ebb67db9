"""The cache of rows against a dictionary: bounded, the oldest of a set goes, what is found is what was put."""

import collections

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strata.memory.ngram.cache import WAYS, RowCache


def set_of(number, sets):
    return ((number * 0x1E3779B97F4A7C15) % 2**64 % 2**63) % sets


class Model(RuleBasedStateMachine):
    """Sets are ordered dictionaries: the first entry was used longest ago."""

    def __init__(self):
        super().__init__()
        self.sets = 3
        self.cache = RowCache(self.sets * WAYS + 5)
        self.data = np.full(len(self.cache), -7, np.int64)
        self.model = [collections.OrderedDict() for _ in range(self.sets)]
        self.hits = self.misses = 0

    numbers = st.lists(st.integers(0, 60) | st.integers(0, 2**50), max_size=20, unique=True)

    @rule(numbers=numbers)
    def find(self, numbers):
        places = self.cache.find(np.array(numbers, np.int64))
        for number, place in zip(numbers, places.tolist(), strict=True):
            one = self.model[set_of(number, self.sets)]
            if number in one:
                one.move_to_end(number)
                self.hits += 1
                assert self.data[place] == number
            else:
                self.misses += 1
                assert place == -1

    @rule(numbers=numbers)
    def put(self, numbers):
        """As a reader does: find, then place what was not there, or what was."""
        wanted = np.array(numbers, np.int64)
        places = self.cache.place(wanted)
        self.data[places] = wanted
        for number in numbers:
            one = self.model[set_of(number, self.sets)]
            one[number] = True
            one.move_to_end(number)
            if len(one) > WAYS:
                one.popitem(last=False)

    @precondition(lambda self: any(self.model))
    @rule()
    def all_are_found(self):
        self.find(sorted(number for one in self.model for number in one))

    @invariant()
    def holds_the_models_rows(self):
        holds = self.cache.holds()
        assert set(holds) == {number for one in self.model for number in one}
        assert len(set(holds.values())) == len(holds) <= len(self.cache)
        assert all(self.data[place] == number for number, place in holds.items())
        assert (self.cache.hits, self.cache.misses) == (self.hits, self.misses)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_even_the_smallest_has_a_set():
    cache = RowCache(0)
    assert len(cache) == WAYS
    cache.place(np.arange(100))
    assert len(cache.holds()) == WAYS


def test_rows_of_a_run_are_spread():
    cache = RowCache(8000)
    cache.place(np.arange(4000))
    assert len(cache.holds()) > 3900
