"""Slots that come and go while windows go on: the bytes of all-resident experts, recorded or not; memory goes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.errors import RoomError, TierError
from strata.experts.misses import Costs
from strata.gguf import open_model
from strata.lab.routing.listening import Listening
from strata.lab.routing.recorder import Recorder
from strata.lab.routing.trace import Trace, TraceWriter
from strata.memory.slots import Rule, SlotCache
from strata.model import Network, load_config, load_weights
from strata.model.decision import Greedy
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.tiers import ram
from strata.ops.tiers import tier as tier_module
from strata.ops.tiers.chunks import HostChunks
from strata.ops.tiers.room import SlotRoom
from strata.ops.tiers.tier import Tier, TierOptions
from support.launch import NATIVE
from support.stored import write_stored
from support.tiered import tiered
from support.tiers import Told

DEVICE = torch.device("cuda" if NATIVE else "cpu")
# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]


def test_rows_are_the_judges_whatever_the_slots():
    """All experts, few, none, and some again: given back at once, filled by moves, never read when they are gone."""
    made = tiered([(i, e) for i in range(2) for e in range(6)], costs=Costs(1.0, 1.0))
    tier, met = made.tier, []
    try:
        for slots in (12, 5, 0, 7):
            tier.resize((slots,))
            if slots == 7:
                made.cache.next = [Told(1, e, slot) for slot, e in ((5, 0), (6, 1), (4, 2), (3, 3), (2, 4), (1, 5))]
                tier._move(tier.cache.moves(6))
                tier._land(wait=True)
            for got, expected, _ in made.window(1):
                assert got.tobytes() == expected.tobytes()
            tier.settled()
            met.append((tier.last.resident, tier.last.experts))
            assert tier.gauges()["slots"] == tier.room.slots[0] == slots
        assert met[0] == (4, 4)
        assert met[2] == (0, 4)
        assert met[3] == (2, 4)  # one layer's are all there
        assert tier.gauges()["slots_held"] == 6
    finally:
        made.close()


@pytest.mark.slow
def test_predictions_do_not_depend_on_slots_that_come_and_go_under_a_recorded_window(tmp_path, monkeypatch):
    """Drafts that are refused, two conversations, windows that were recorded when there were more slots, or fewer."""
    directory = open_model(write_stored(tmp_path / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    config, weights = replace(config, mtp=False, ple=None, mixers=config.mixers[3:4]), load_weights(directory, config)
    weights = replace(weights, layers=weights.layers[3:4], mtp=None)
    moes = [layer.moe for layer in weights.layers]
    kinds, most = ram.layouts(moes), config.moe.E

    def made(slots):
        tier = None
        if slots is not None:
            cache = SlotCache([kinds[0].nbytes], [0], [slots], experts=most)
            options = TierOptions(costs=Costs(1.0, 1.0), room=3, every=1, moves=8)
            described, held = ram.described(moes), ram.pinned(moes) if NATIVE else ram.mapped(moes)
            tier = Tier(kinds, described, held, cache, [0], [slots], config.moe.topk, DEVICE, options)
            tier.fill()
        ops = GpuOps(config, Pool(config, DEVICE, slots=3, cells=384, kv=torch.float32), DEVICE, tier=tier)
        return Network(config, Upload(DEVICE, tier=tier).all(weights), ops), tier

    def text(network, between=lambda _: None, heard=None):
        one, two = network.new_state(), network.new_state()
        found = []
        for step, (ids, kept) in enumerate((([5, 9], 1), ([11, 4], 2), ([7, 90], 1))):
            done = network.window([(one, ids)])
            found.append(network.predictions(done).tobytes())
            network.commit(one, done[0], kept)
            between(step)
        network = heard or network
        done = network.window([(one, [3]), (two, [8])])
        decisions = network.decide([(one, done[0]), (two, done[1])], [Greedy(np.empty(0, np.int64), (), 1)] * 2)
        return found, [(each.ids, each.logprobs) for each in decisions]

    expected = text(made(None)[0])
    network, tier = made(most)
    if not NATIVE:
        from support.recorded import recorded

        recorded(network.ops, monkeypatch)
    hits = []

    def between(step):
        hits.append(tier.last.resident / tier.last.experts)
        at = tier.room.nbytes
        tier.resize(((0, most, 2)[step],))
        assert NATIVE or (tier.room.nbytes < at) == (step != 1)
        if step == 1:
            tier.fill()

    try:
        with TraceWriter(tmp_path / "trace", 1, most, config.moe.topk) as writer:
            listener = Listening(network.ops, Recorder(writer, 1))
            assert text(network, between, replace(network, ops=listener)) == expected
            assert (2,) in network.ops.recorded
            listener.flush()
        assert hits == [1.0, 0.0, 1.0]  # the third window is a replay, with experts that came into new slots
        (told,) = Trace(tmp_path / "trace")  # of the last window, which no record has
        assert (told.kept.tolist(), told.conversation.tolist()) == ([True, True], [0, 1])
        visits = tier._visited()
        chosen, rows = np.unique(told.rows[:, 0], return_counts=True)
        assert dict(zip(chosen.tolist(), rows.tolist(), strict=True)) == dict(visits[:, 1:].tolist())
    finally:
        tier.close()


LAYERS, EXPERTS = 2, 6


class Copies:
    """Copies that end when somebody says so; each leaves its expert's mark in its slot."""

    def __init__(self, room):
        self.room, self.flights, self.over = room, [], []

    @property
    def flying(self):
        return sum(map(len, self.flights))

    def launch(self, moves):
        self.flights.append(list(moves))

    def end(self):
        for move in self.flights.pop(0):
            self.room.arrays[0][move.slot] = mark(move.layer, move.expert)
            self.over.append(move)

    def landed(self, *, wait=False):
        while wait and self.flights:
            self.end()
        found, self.over = self.over, []
        return found


def mark(layer, expert):
    return 1 + layer * EXPERTS + expert


class Windows(RuleBasedStateMachine):
    """Windows, moves, copies and resizes in any order, on a card of little memory that others use, too.

    The model: the table that the last window began with, which slots there are, and how many when nothing is borrowed.
    What that table names lies there.
    """

    @initialize(slots=st.integers(0, 12))
    def begin(self, slots):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(tier_module, "QUIET", 4)
        self.made = tiered([], slots=slots)
        self.tier = tier = self.made.tier
        size = tier.layers[0].source.layout.nbytes
        self.page = HostChunks().size
        self.system = HostChunks(most=-(-size * 12 // self.page))
        tier.room = SlotRoom(self.system, [size], [12], [slots])
        tier.cache = SlotCache([size], [0] * LAYERS, [slots], experts=EXPERTS, rule=Rule(0.5, 0.9, 0.1, 0.0))
        tier.largest = tier.room.arrays[0]
        tier._mover = self.copies = Copies(tier.room)
        self.size, self.slots, self.others, self.sent = size, slots, 0, {}
        self.whole, self.borrowed, self.quiet, self.returned = None, 0, 0, 0
        tier.borrowing.returning = self.returns
        self.tier.begin()

    def returns(self):
        self.returned += 1

    def teardown(self):
        self.patch.undo()
        if hasattr(self, "made"):
            self.made.close()

    @rule(visits=st.lists(st.tuples(st.integers(0, LAYERS - 1), st.integers(0, EXPERTS - 1)), max_size=6, unique=True))
    def window(self, visits):
        tier = self.tier
        tier.begin()
        tier.window_begun()
        table = tier.table.cpu().numpy()
        self.sent = {(a, e): int(table[a, e]) for a, e in np.argwhere(table >= 0).tolist()}
        self.holds()
        tier._told_visits.zero_()
        for layer in range(LAYERS):
            mine = [expert for a, expert in visits if a == layer]
            tier._told_visits[layer, 0] = len(mine)
            tier._told_visits[layer, 1 : 1 + len(mine)] = torch.tensor(mine, dtype=torch.int32)
        lent = bool(tier._lent)
        tier.settled()  # may begin moves
        self.quiet += 1
        if self.quiet >= 4 and (lent or self.whole is not None):
            assert tier._lent == []
            self.came_back()

    @rule(pages=st.integers(0, 4))
    def long_prompt_borrows(self, pages):
        """Memory is the system's; what counts most stays."""
        tier, page = self.tier, self.page
        before, flying, counts = tier.cache.slot_of.copy(), self.flying, tier.cache.counts()
        lacks = -(-(pages * page - self.borrowed) // page)
        free = self.system.most - self.system.taken
        self.quiet = 0
        if lacks > self._chunks(self.slots) - 1:
            with pytest.raises(RoomError, match="do not hold"):
                tier.borrowing.take(pages * page)
            assert (tier.cache.slot_of == before).all()
            return
        tier.borrowing.take(pages * page)
        if lacks <= 0:
            assert (tier.cache.slot_of == before).all()
            return
        gone = self.system.most - self.system.taken - free
        assert lacks <= gone <= lacks + -(-self.size // self.page), "and no slot more"
        self.whole = self.slots if self.whole is None else self.whole
        self.slots = tier.room.slots[0]
        self.borrowed = tier.borrowing.nbytes
        assert self.borrowed == page * (self._chunks(self.whole) - self._chunks(self.slots)) >= pages * page
        self.shrunk(before, flying, counts)

    @precondition(lambda self: self.whole is not None)
    @rule()
    def it_comes_back(self):
        self.tier.borrowing.give_back()
        self.came_back()

    def came_back(self):
        """All of it, or what nobody else has taken meanwhile."""
        self.quiet = 0
        if self.whole is None:
            return
        assert self.returned > 0
        was, self.slots = self.slots, self.tier.room.slots[0]
        assert was <= self.slots <= self.whole
        self.borrowed = self.tier.borrowing.nbytes
        if self.slots == self.whole:
            assert self.borrowed == 0
            self.whole = None
            return
        assert self.borrowed == self.page * (self._chunks(self.whole) - self._chunks(self.slots))
        assert self._chunks(self.slots + 2) > self._chunks(self.slots) + self.system.most - self.system.taken, (
            "the last chunks may not be worth a slot"
        )

    @property
    def flying(self):
        """Moves that have not landed."""
        return self.copies.flying + len(self.copies.over)

    def shrunk(self, before, flying, counts):
        after, held = self.tier.cache.slot_of, int((before >= 0).sum())
        lost, stays = (before >= 0) & (after < 0), after >= 0
        assert stays.sum() == min(held + flying, self.slots)
        assert not lost.any() or not stays.any() or counts[lost].max() <= counts[stays].min()
        near = stays & (before >= 0) & (before < self.slots)
        assert (after[near] == before[near]).all(), "nobody moves without need"
        assert (after < self.slots).all()
        assert not self.copies.flying
        assert self.tier._lent == []
        assert (self.tier.sent < self.slots).all()  # nor does the device know of any that went
        assert (self.tier.sent == after).all()
        self.sent = {}

    @rule(most=st.integers(0, 8))
    def prompt_borrows(self, most):
        """A pass of a prompt has what it likes in the slots that it is lent, until they are taken back."""
        self.quiet = 0
        lent = self.tier.lend(most)
        assert len(set(lent)) == len(lent) <= self.slots // 4
        assert all(0 <= slot < self.slots for slot in lent)
        assert not {*self.tier.cache.slot_of.ravel().tolist()} & {*lent}
        assert not {*self.tier.sent.ravel().tolist()} & {*lent}
        self.tier.room.arrays[0][list(lent)] = 255

    @precondition(lambda self: self.copies.flights)
    @rule()
    def copy_ends(self):
        self.copies.end()

    @rule(slots=st.integers(0, 12), spare=st.integers(0, 2))
    def resize(self, slots, spare):
        need = self._chunks(slots) - self._chunks(self.slots)
        free = self.system.most - self.system.taken - spare
        before, counts = self.tier.cache.slot_of.copy(), self.tier.cache.counts()
        if need > max(free, 0):
            flying = self.copies.flying
            with pytest.raises(RoomError):
                self.tier.resize((slots,), spare * self.page)
            assert (self.tier.cache.slot_of == before).all()
            assert (self.copies.flying, self.tier.room.slots) == (flying, (self.slots,))
            return
        flying = self.flying
        self.tier.resize((slots,), spare * self.page)
        self.slots, self.whole, self.borrowed = slots, None, 0
        self.shrunk(before, flying, counts)
        assert self.tier.borrowing.nbytes == 0

    @rule()
    def no_such_number(self):
        with pytest.raises(TierError):
            self.tier.resize((13,))

    @precondition(lambda self: self.system.taken < self.system.most)
    @rule()
    def somebody_takes(self):
        self.system.take()
        self.others += 1

    @precondition(lambda self: self.others)
    @rule()
    def somebody_gives(self):
        self.system.drop(None)
        self.others -= 1

    def _chunks(self, slots):
        return max(1, -(-self.size * slots // self.page))

    @invariant()
    def holds(self):
        """What the cache counts on lies there, whole; what a window is sent is that."""
        if not hasattr(self, "made"):
            return
        cache, room = self.tier.cache, self.tier.room
        assert cache.slots == room.slots == (self.slots,)
        assert self.system.taken == self.others + self._chunks(self.slots)
        for layer, expert in np.argwhere(cache.slot_of >= 0).tolist():
            slot = cache.slot_of[layer, expert]
            assert slot < self.slots
            assert int(room.arrays[0][slot].min()) == mark(layer, expert) == int(room.arrays[0][slot].max())


@pytest.mark.skipif(NATIVE, reason="nothing of it is a device's")
class TestWindows(Windows.TestCase):
    settings = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
