"""Which experts memory holds, against a dictionary: nothing in use goes, the lowest score goes, bounds hold."""

import math

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strata.memory.errors import StorageError
from strata.memory.tier.held import Held

CLASSES, EXPERTS, SLOTS, HALF = (0, 1, 0), 5, (4, 2), 3.0
pairs = st.tuples(st.integers(0, 2), st.lists(st.integers(0, EXPERTS - 1), max_size=4, unique=True))


def numbers(experts):
    return np.array(experts, np.int64)


class Model(RuleBasedStateMachine):
    """Scores are sums over all visits; slots a dictionary of who is there, and how."""

    def __init__(self):
        super().__init__()
        self.held = Held(CLASSES, EXPERTS, SLOTS, HALF)
        self.now = 0
        self.visits = {}
        self.ready, self.coming, self.pins = {}, {}, {}
        self.shown, self.twice = set(), set()

    def score(self, who):
        return sum(2.0 ** ((t - self.now) / HALF) for t in self.visits.get(who, []))

    @rule(count=st.integers(1, 3))
    def time_passes(self, count):
        for _ in range(count):
            self.held.begin()
        self.now += count

    @rule(pair=pairs)
    def visit(self, pair):
        layer, experts = pair
        self.held.seen(layer, numbers(experts))
        for e in experts:
            self.visits.setdefault((layer, e), []).append(self.now)

    @rule(pair=pairs, force=st.booleans())
    def claim(self, pair, force):
        layer, experts = pair
        experts = [e for e in experts if (layer, e) not in self.ready and (layer, e) not in self.coming]
        kind = CLASSES[layer]
        here = {who: slot for who, slot in {**self.ready, **self.coming}.items() if CLASSES[who[0]] == kind}
        free = SLOTS[kind] - len(here)
        open_ = [who for who in self.ready if CLASSES[who[0]] == kind and not self.pins[who] and who not in self.shown]
        worth = {who: (who not in self.twice) * self.score(who) for who in open_}
        given, out = self.held.claim(layer, numbers(experts), force=force)
        assert [e for e, _ in given] == experts[: len(given)]
        if force:
            assert len(given) == min(len(experts), free + len(open_))
        else:
            assert len(given) >= min(len(experts), free)
            for e, gone in zip(experts[free:], sorted(out, key=worth.get), strict=False):
                assert worth[gone] <= self.score((layer, e)) * (1 + 1e-9)
            worse = (
                [who for who in open_ if worth[who] <= min(self.score((layer, e)) for e in experts) * (1 - 1e-9)]
                if experts
                else []
            )
            assert len(given) >= min(len(experts), free + len(worse))
        assert len(out) == max(0, len(given) - free)
        assert len(set(out)) == len(out)
        assert set(out) <= set(open_)
        if out and len(out) < len(open_):
            stays = min(worth[who] for who in open_ if who not in out)
            goes = max(worth[who] for who in out)
            assert goes <= stays or math.isclose(goes, stays, rel_tol=1e-9)
            assert set(out) <= self.twice or not (self.twice & set(open_)) - set(out)
        for who in out:
            del self.ready[who], self.pins[who]
        for e, slot in given:
            self.coming[layer, e] = (kind, slot)
            self.pins[layer, e] = 1

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), good=st.booleans())
    def read(self, data, good):
        layer, e = data.draw(st.sampled_from(sorted(self.coming)))
        slot = self.coming.pop((layer, e))
        if good:
            self.held.landed(layer, numbers([e]))
            self.ready[layer, e] = slot
        else:
            self.held.failed(layer, numbers([e]))
            del self.pins[layer, e]

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def pin(self, data):
        layer, e = data.draw(st.sampled_from(sorted(self.ready)))
        self.held.pin(layer, numbers([e]))
        self.pins[layer, e] += 1

    @precondition(lambda self: any(self.pins[who] for who in self.ready))
    @rule(data=st.data())
    def release(self, data):
        layer, e = data.draw(st.sampled_from(sorted(who for who in self.ready if self.pins[who])))
        self.held.release(layer, numbers([e]))
        self.pins[layer, e] -= 1

    @rule(who=st.sets(st.tuples(st.integers(0, 2), st.integers(0, EXPERTS - 1)), max_size=6))
    def copies_elsewhere(self, who):
        self.twice = who
        self.held.twice[:] = False
        for pair in who:
            self.held.twice[pair] = True

    @rule(least=st.tuples(st.integers(0, 5), st.integers(0, 3)))
    def show(self, least):
        before = self.shown
        changed = self.held.show(least)
        self.shown = {(int(i), int(e)) for i, e in np.argwhere(self.held.shown)}
        assert changed == (self.shown != before)
        for kind, count in enumerate(least):
            may = [who for who in self.ready if CLASSES[who[0]] == kind and who not in self.twice]
            now = [who for who in self.shown if CLASSES[who[0]] == kind]
            assert set(now) <= set(may)
            assert len(now) == min(len(may), max(0, SLOTS[kind] - count))
            if now and len(now) < len(may):
                worst, best = min(map(self.score, now)), max(self.score(who) for who in may if who not in now)
                assert best <= worst or math.isclose(best, worst, rel_tol=1e-9)

    @invariant()
    def is_what_the_model_says(self):
        everyone = {**self.ready, **self.coming}
        slots = {(CLASSES[i], int(s)) for (i, _), s in np.ndenumerate(self.held.slot_of) if s >= 0}
        assert slots == set(everyone.values())
        for layer in range(3):
            expected = [(layer, e) in self.ready for e in range(EXPERTS)]
            assert self.held.holds(layer, np.arange(EXPERTS)).tolist() == expected
            for e in range(EXPERTS):
                slot = int(self.held.slot_of[layer, e])
                assert everyone.get((layer, e)) == (None if slot < 0 else (CLASSES[layer], slot))
        assert self.held.held == len(self.ready)
        assert {(int(i), int(e)) for i, e in np.argwhere(self.held.shown)} == self.shown
        for kind, count in enumerate(SLOTS):
            mine = [who for who in everyone if CLASSES[who[0]] == kind]
            assert self.held.free[kind] == count - len(mine)
            assert self.held.used(kind) == sum(self.pins[who] > 0 and who not in self.shown for who in mine)
        assert self.held.pinned == sum(pins > 0 for pins in self.pins.values())


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def two_held():
    """Of three experts two, in all the slots there are."""
    held = Held((0,), 3, (2,), half_life=2.0)
    for expert in (0, 1):
        held.claim(0, numbers([expert]))
        held.landed(0, numbers([expert]))
        held.release(0, numbers([expert]))
    return held


def test_old_visits_fade():
    held = two_held()
    held.begin()
    for _ in range(3):
        held.seen(0, numbers([0]))
    for _ in range(5):
        held.begin()
    held.seen(0, numbers([1]))  # once, five passes later: 1 against 3 / 2 ** 2.5
    assert held.claim(0, numbers([2]))[1] == [(0, 0)]


def test_whoever_is_shown_stays_though_it_counts_less():
    held = two_held()
    held.seen(0, numbers([0]))
    assert held.show([1])
    assert held.shown.tolist() == [[True, False, False]]
    for _ in range(3):
        held.seen(0, numbers([1]))
    assert held.claim(0, numbers([2]))[1] == [(0, 1)]


def test_a_class_without_slots_is_refused():
    with pytest.raises(StorageError, match="at least one slot each"):
        Held((0, 1), 3, (2, 0))
    with pytest.raises(StorageError, match="at least one slot each"):
        Held((0, 2), 3, (2, 1))
