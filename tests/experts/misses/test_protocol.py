"""The words between the halves as a state machine: whatever happens in whatever order, answers are right or refused."""

import time

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.experts.kernels.cached import task_function
from strata.experts.misses import mailbox as box
from strata.experts.pool.region import LOST
from support.misses import layers

CARDS = 12
LONG = 60.0

_made = layers(("Q8_0", "Q8_0", "Q8_0"), np.random.default_rng(2), hidden=64, inner=32)
_deck = _made.deck(CARDS, np.random.default_rng(3))
_lost = LOST
_die = task_function(lambda task, first, last: _lost)  # noqa: ARG005


class Halves(RuleBasedStateMachine):
    """A device that is Python, beside the real loop."""

    @initialize()
    def begin(self):
        self.memory = _made.memory()
        self.loop = _made.loop(self.memory, spin=0.001)
        self.words = _made.mailbox.words(self.memory)
        self.asked = 0
        self.broken = False

    def _raise(self, card):
        m = _made.mailbox
        self.memory[box.HEADER : m.results] = _deck.messages[card]
        m.view(self.memory, m.results, np.float32, m.pairs, m.hidden)[:] = np.nan
        self.asked += 1
        self.words[0] = self.asked

    def _until(self, condition):
        end = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < end
            time.sleep(5e-5)

    @precondition(lambda self: not self.broken)
    @rule(card=st.integers(0, CARDS - 1))
    def ask(self, card):
        self._raise(card)
        self._until(lambda: self.words[1] >= self.asked)
        assert self.words[1] == self.asked
        m = _made.mailbox
        rows = m.view(self.memory, m.results, np.float32, m.pairs, m.hidden)
        assert rows[_deck.pairs[card]].tobytes() == _deck.answers[card][_deck.pairs[card]].tobytes()
        assert np.isnan(rows[~_deck.pairs[card]]).all()  # nobody else's row was touched

    @precondition(lambda self: not self.broken)
    @rule(card=st.integers(0, CARDS - 1), word=st.sampled_from([box.LAYER, box.ROWS, box.COUNT]), high=st.booleans())
    def ask_nonsense(self, card, word, high):
        m = _made.mailbox
        self.memory[box.HEADER : m.results] = _deck.messages[card]
        m.view(self.memory, box.HEADER, np.int32, 4)[word] = 1000 if high else -1
        self.asked += 1
        self.words[0] = self.asked
        self._until(lambda: self.words[1] == box.BROKEN)
        self.broken = True
        assert self.loop.fault().code == box.BAD_MESSAGE

    @precondition(lambda self: not self.broken)
    @rule(card=st.integers(0, CARDS - 1))
    def kill(self, card):
        layer = int(_deck.messages[card, :4].view(np.int32)[0])
        at = _made.stored[layer].down.address
        words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 11).from_address(at))
        before, words[4] = int(words[4]), _die.address
        self._raise(card)
        self._until(lambda: self.words[1] == box.BROKEN)
        words[4] = before
        self._until(lambda: not self.loop.running)
        self.broken = True
        assert self.loop.fault().code == box.LOST

    @precondition(lambda self: not self.broken and self.asked)
    @rule()
    def give_up(self):
        """The device says that its patience ended, though the answer came just then."""
        self.words[3] = self.asked
        self.broken = True
        assert self.loop.fault() is not None

    @rule()
    def recover(self):
        self.loop.recover(LONG)
        self.broken = False
        assert self.words[1] == self.words[0] == self.asked

    @rule()
    def ring(self):
        self.loop.ring()

    @rule(seconds=st.sampled_from([0.0, 0.004]))
    def rest(self, seconds):
        time.sleep(seconds)

    @precondition(lambda self: not self.broken)
    @rule()
    def close_and_start(self):
        self.loop.close()
        assert not self.loop.running
        self.loop.start()

    @invariant()
    def a_fault_is_told_until_somebody_recovers(self):
        assert (self.loop.fault() is not None) == self.broken

    def teardown(self):
        if hasattr(self, "loop"):
            self.loop.close()


TestHalves = Halves.TestCase
TestHalves.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
