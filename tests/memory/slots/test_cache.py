"""The slot cache as a state machine against dictionaries, and what it promises whatever happens."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.memory.slots import Move, Rule, SlotCache, SlotError

E = 5
CLASSES = (0, 1, 0)
KEYS = [(layer, expert) for layer in range(len(CLASSES)) for expert in range(E)]
MEMBERS = [[(layer, e) for e in range(E) for layer, c in enumerate(CLASSES) if c == each] for each in range(2)]

visit_lists = st.lists(st.sampled_from(KEYS), max_size=9)


def rows(pairs) -> np.ndarray:
    return np.array([(*pair, 1) for pair in pairs], np.int32).reshape(-1, 3)


class Machine(RuleBasedStateMachine):
    """Counts are sums of halves and quarters, so that the model's numbers are exactly the cache's."""

    @initialize(
        slots=st.tuples(st.integers(0, 11), st.integers(0, 6)),
        decay=st.sampled_from([0.0, 0.5, 1.0]),
        share=st.sampled_from([0.0, 0.25]),
        margin=st.sampled_from([0.0, 0.5, 2.0]),
    )
    def start(self, slots, decay, share, margin) -> None:
        self.rule = Rule(decay=decay, slow=1.0, share=share, margin=margin)
        self.cache = SlotCache([10, 20], CLASSES, slots, experts=E, rule=self.rule)
        self.quick, self.slow = dict.fromkeys(KEYS, 0.0), dict.fromkeys(KEYS, 0.0)
        self.count = list(slots)
        self.inside = [{}, {}]  # by class: what lies in a slot
        self.flying: list[Move] = []
        self.over: list[Move] = []
        self.heats: list[np.ndarray] = []
        self.begun: dict[tuple[int, int], int] = {}  # copies into (class, slot) ever
        self.missed: list[tuple[int, int]] = []
        self.lent: list[list[int]] = [[], []]  # by class

    # -- the model's view -------------------------------------------------------------------------------------------

    def where(self, key):
        return next((slot for slot, other in self.inside[CLASSES[key[0]]].items() if other == key), None)

    def taken(self, c) -> set[int]:
        return {move.slot for move in self.flying if CLASSES[move.layer] == c} | set(self.lent[c])

    def score(self, key) -> float:
        return self.quick[key] + self.rule.share * self.slow[key]

    def expected(self, candidates, most, busy, worth) -> list[Move]:
        pairs = []
        for c in range(2):
            taken = self.taken(c)
            empty = [s for s in range(self.count[c]) if s not in self.inside[c] and s not in taken]
            coming = {(move.layer, move.expert) for move in self.flying}
            some = [k for k in candidates(c, empty) if CLASSES[k[0]] == c and self.where(k) is None and k not in coming]
            some = sorted(some, key=lambda k: -self.score(k))[: min(most, sum(self.count))]
            victims = sorted((self.score(k), s) for s, k in self.inside[c].items() if k not in busy)
            places = [(0.0, s) for s in empty] + victims
            for key, (least, slot) in zip(some, places, strict=False):
                gain = self.score(key) + worth - least
                if slot in empty or gain >= self.rule.margin:
                    pairs.append(Move(*key, slot, self.inside[c].get(slot), self.begun.get((c, slot), 0) + 1, gain))
        return sorted(pairs, key=lambda m: -m.gain)[:most]

    # -- what may happen --------------------------------------------------------------------------------------------

    @rule(visits=visit_lists)
    def window(self, visits) -> None:
        hits = self.cache.seen(rows(visits))
        assert hits == sum(self.where(k) is not None for k in visits)
        self.quick = {k: v * self.rule.decay for k, v in self.quick.items()}
        for key in visits:
            self.quick[key] += 1
            self.slow[key] += 1
            if self.where(key) is None and key not in self.missed:
                self.missed.append(key)

    @rule(most=st.integers(0, 12), busy=st.none() | visit_lists, data=st.data())
    def adapt(self, most, busy, data) -> None:
        moves = self.cache.moves(most, None if busy is None else rows(busy))

        def considered(c, empty):
            return MEMBERS[c] if empty and len(self.inside[c]) < len(MEMBERS[c]) else self.missed

        assert moves == self.expected(considered, most, busy or [], 0.0)
        self.missed = []
        self.begin_some(moves, data)

    @rule(
        most=st.integers(0, 6), wanted=visit_lists, busy=visit_lists, worth=st.sampled_from([0, 1, 8]), data=st.data()
    )
    def prefetch(self, most, wanted, busy, worth, data) -> None:
        moves = self.cache.fetch(rows(wanted), most, rows(busy), worth=worth)
        distinct = list(dict.fromkeys(wanted))
        assert moves == self.expected(lambda *_: distinct, most, busy + wanted, worth)
        self.begin_some(moves, data)

    def begin_some(self, moves, data) -> None:
        for move in data.draw(st.permutations(moves)) if moves else []:
            if data.draw(st.booleans()):
                self.cache.begin(move)
                c = CLASSES[move.layer]
                self.inside[c].pop(move.slot, None)
                self.begun[c, move.slot] = move.generation
                self.flying.append(move)
                with pytest.raises(SlotError, match="does not fit"):
                    self.cache.begin(move)

    @precondition(lambda self: self.flying)
    @rule(well=st.booleans(), data=st.data())
    def end(self, well, data) -> None:
        move = data.draw(st.sampled_from(self.flying))
        self.flying.remove(move)
        c = CLASSES[move.layer]
        ours = move.slot < self.count[c]
        assert (self.cache.landed(move) if well else self.cache.failed(move)) is ours
        if ours and well:
            self.inside[c][move.slot] = (move.layer, move.expert)
        self.over.append(move)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def what_is_over_does_not_end_again(self, data) -> None:
        move = data.draw(st.sampled_from(self.over))  # even if the same expert comes to the same slot once more
        for again in (self.cache.landed, self.cache.failed):
            with pytest.raises(SlotError, match="not under way"):
                again(move)

    @rule(c=st.integers(0, 1), count=st.integers(0, 12))
    def resize(self, c, count) -> None:
        waiting = self.taken(c)
        before, self.count[c] = self.count[c], count
        resized = self.cache.resize(c, count)
        assert list(resized.taken) == [s for s in range(before, count) if s not in waiting]
        assert list(resized.given) == [s for s in range(count, before) if s not in waiting]
        assert list(resized.waiting) == [s for s in range(count, before) if s in waiting]
        lost = {s: k for s, k in sorted(self.inside[c].items()) if s >= count}
        assert list(resized.lost) == list(lost.values())
        self.inside[c] = {s: k for s, k in self.inside[c].items() if s < count}

    @rule(c=st.integers(0, 1), count=st.integers(0, 12))
    def gather(self, c, count) -> None:
        """Those that count most come before a slot, in place of those that count least there."""
        inside = self.inside[c]
        front = [s for s in range(min(count, self.count[c])) if s not in self.taken(c)]
        front.sort(key=lambda s: (self.score(inside[s]) if s in inside else -1.0, s))
        behind = sorted((s for s in inside if s >= count), key=lambda s: (-self.score(inside[s]), s))
        pairs = [
            (source, to)
            for source, to in zip(behind, front, strict=False)
            if to not in inside or self.score(inside[source]) > self.score(inside[to])
        ]
        assert self.cache.gather(c, count) == pairs
        for source, to in pairs:
            inside[to] = inside.pop(source)
            self.begun[c, to] = self.begun.get((c, to), 0) + 1

    @rule(c=st.integers(0, 1), most=st.integers(0, 4))
    def lend(self, c, most) -> None:
        free = [s for s in range(self.count[c]) if s not in self.taken(c)]
        free.sort(key=lambda s: (-1.0 if s not in self.inside[c] else self.score(self.inside[c][s]), s))
        assert self.cache.lend(c, most) == free[:most]
        self.lent[c] += free[:most]
        self.inside[c] = {s: k for s, k in self.inside[c].items() if s not in free[:most]}

    @rule(c=st.integers(0, 1), count=st.integers(0, 4))
    def take_back(self, c, count) -> None:
        some, self.lent[c] = self.lent[c][:count], self.lent[c][count:]
        assert self.cache.take_back(c, some) == [s for s in some if s < self.count[c]]
        for wrong in ([*some[:1]], [99]):
            if wrong:
                with pytest.raises(SlotError, match="were not lent"):
                    self.cache.take_back(c, wrong)

    @rule(key=st.sampled_from(KEYS))
    def drop(self, key) -> None:
        slot = self.where(key)
        if slot is None:
            with pytest.raises(SlotError, match="lies in no slot"):
                self.cache.drop(*key)
        else:
            assert self.cache.drop(*key) == slot
            del self.inside[CLASSES[key[0]]][slot]

    @rule(data=st.data())
    def turn(self, data) -> None:
        heat = data.draw(st.none() | st.sampled_from(self.heats)) if self.heats else None
        self.heats.append(self.cache.turn(heat))
        assert self.heats[-1].ravel().tolist() == [self.quick[k] for k in KEYS]
        theirs = dict.fromkeys(KEYS, 0.0) if heat is None else dict(zip(KEYS, heat.ravel().tolist(), strict=True))
        self.quick = {k: 0.5 * self.quick[k] + theirs[k] for k in KEYS}

    @rule()
    def a_profile_carries_the_counts(self) -> None:
        again = SlotCache.from_profile(self.cache.profile(), [10, 20], CLASSES, (3, 2), rule=self.rule)
        assert np.array_equal(again.counts(), self.cache.counts())
        assert again.held == (0, 0)

    # -- what is always true ----------------------------------------------------------------------------------------

    @invariant()
    def the_tables_agree(self) -> None:
        table = np.full((len(CLASSES), E), -1)
        for c in range(2):
            for slot, key in self.inside[c].items():
                table[key] = slot
            held = sorted((s, *k, self.begun[c, s]) for s, k in self.inside[c].items())
            assert self.cache.sources(c) == held
        assert np.array_equal(self.cache.slot_of, table)
        assert self.cache.held == tuple(map(len, self.inside))
        assert self.cache.slots == tuple(self.count)
        assert self.cache.flying == len(self.flying)
        assert self.cache.counts().ravel().tolist() == [self.score(k) for k in KEYS]


Machine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestSlotCache = Machine.TestCase
