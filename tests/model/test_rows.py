"""`Rows` as a state machine against a plain list."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strata.model.rows import Rows


class RowsMachine(RuleBasedStateMachine):
    """Write, commit, truncate and clone in any order."""

    def __init__(self):
        super().__init__()
        self.rows = Rows((2,))
        self.kept = []  # committed rows
        self.pending = []  # written behind the end
        self.next = 0
        self.others = []  # clones and what they must keep holding

    @rule(count=st.integers(0, 70))
    def write(self, count):
        values = [[float(self.next + i), -1.0] for i in range(count)]
        self.next += count
        self.rows.write(torch.tensor(values).reshape(count, 2))
        self.pending = values

    @rule(data=st.data())
    def commit(self, data):
        n = data.draw(st.integers(0, len(self.pending)))
        self.rows.commit(n)
        self.kept, self.pending = self.kept + self.pending[:n], self.pending[n:]

    @rule(data=st.data())
    def truncate(self, data):
        length = data.draw(st.integers(0, len(self.kept) + 3))
        self.rows.truncate(length)
        if length < len(self.kept):
            self.kept, self.pending = self.kept[:length], []

    @rule()
    def clone(self):
        self.others.append((self.rows.clone(), list(self.kept)))

    @rule()
    def continue_with_a_clone(self):
        self.rows, self.pending = self.rows.clone(), []

    @invariant()
    def holds_what_the_list_holds(self):
        assert self.rows.length == len(self.kept)
        assert self.rows.upto(self.rows.length).tolist() == self.kept
        everything = self.rows.upto(len(self.kept) + len(self.pending))
        assert everything.tolist() == self.kept + self.pending
        for other, expected in self.others:
            assert other.upto(other.length).tolist() == expected


TestRows = RowsMachine.TestCase
TestRows.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
