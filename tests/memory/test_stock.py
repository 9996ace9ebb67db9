"""RAM that holds a part of a GPU's missing experts: what is shown or used stays, everything has its bytes."""

import contextlib
import ctypes
import errno
import threading
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strata.memory.arena import SlotShape, Stack
from strata.memory.errors import StorageError
from strata.memory.reads import Readers, ReadFile, pread
from strata.memory.tier import Stock
from support.faults import Faulty

EXPERTS, COUNT = 6, 3
PARTS = ((5000, 4096, 901), (640, 640, 8000))
LONG = 60.0


def _written(path):
    """Three layers of two sizes in one file."""
    data = np.random.default_rng(0).integers(0, 250, 300_000, dtype=np.uint8)
    path.write_bytes(data.tobytes())
    source, layers, at = ReadFile(path), [], 96
    for layer in range(COUNT):
        stacks = []
        for nbytes in PARTS[layer % 2]:
            stacks.append(Stack(source, at, nbytes, nbytes, EXPERTS))
            at += EXPERTS * nbytes + 32
        layers.append(tuple(stacks))
    assert at < len(data)
    return layers, data


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    found = _written(tmp_path_factory.mktemp("stock") / "experts.bin")
    Machine.model = found
    return found


def bytes_for(*slots):
    return 8192 + sum(SlotShape(parts).nbytes * count for parts, count in zip(PARTS, slots, strict=True))


def numbers(*experts):
    return np.array(experts, np.int64)


def at(address, nbytes):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(int(address)))


def check(model, addresses, layer, experts):
    """Bytes of the file lie at these addresses, int64 [L, E, 3]."""
    layers, data = model
    for part, stack in enumerate(layers[layer]):
        for expert in experts:
            first = stack.of(int(expert))
            expected = data[first : first + stack.nbytes]
            np.testing.assert_array_equal(at(addresses[layer, int(expert), part], stack.nbytes), expected)


def nowhere(count=COUNT):
    return np.zeros((count, EXPERTS), np.bool_)


@contextlib.contextmanager
def stocked(model, slots, decide=None, *, only=COUNT, **more):
    """A stock with about so many slots of each size; of one layer with exactly so many."""
    faulty = Faulty(decide or (lambda _call, _file, n, _at: n))
    pool = Readers(2, faulty.functions)
    stock = Stock(model[0][:only], pool, bytes_for(*slots), **more)
    try:
        yield stock
    finally:
        stock.close()
        pool.close()


class Read:
    """What `Readers.submit` gives, of a disk that does as it is told."""

    def __init__(self, items):
        self.items, self.done, self.began = items, False, time.perf_counter()
        self.nbytes = sum(item.nbytes for item in items)

    def end(self, data):
        for item in self.items:
            at(item.to, item.nbytes)[:] = data[item.offset : item.offset + item.nbytes]
        self.done = True

    def wait(self):
        assert self.done

    def abandon(self):
        self.done = True


class Disk:
    """Reads end in their order, when a test says so or somebody waits; it is the bell of that, too."""

    def __init__(self, data):
        self._data, self._reads = data, []

    def submit(self, items, keeps, told):  # noqa: ARG002
        self._reads.append(Read(items))
        return self._reads[-1]

    def end(self, count):
        for read in self._reads[:count]:
            read.end(self._data)
        del self._reads[:count]

    def wait(self, timeout):  # noqa: ARG002
        self.end(1)

    def clear(self):
        pass


class Machine(RuleBasedStateMachine):
    """Against dictionaries of who is shown, held and booked. Reads come when they like."""

    model = None

    def __init__(self):
        super().__init__()
        self.disk = Disk(self.model[1])
        self.stock = Stock(self.model[0], self.disk, bytes_for(5, 3), landing=2, half_life=3.0)
        self.stock._coming._bell = self.disk
        self.shown, self.places = set(), np.full((COUNT, EXPERTS, 3), self.stock.nobody)
        self.held, self.booked = [], {}  # (layer, expert) as often as it is pinned; booked by layer, in order
        self.visit, self.group = None, ()

    def teardown(self):
        if self.visit is not None:
            self.visit[0].close()
        self.stock.close()

    @precondition(lambda self: self.visit is None)
    @rule(elsewhere=st.sets(st.tuples(st.integers(0, COUNT - 1), st.integers(0, EXPERTS - 1)), max_size=5))
    def a_window_begins(self, elsewhere):
        twice = nowhere()
        for pair in elsewhere:
            twice[pair] = True
        changed = self.stock.begin(twice)
        now = {(int(i), int(e)) for i, e in np.argwhere(self.stock.shown)}
        assert changed == (now != self.shown)
        assert not now & elsewhere
        self.shown, self.places = now, self.stock.places().copy()
        gone = {pair for pair in np.ndindex(COUNT, EXPERTS) if pair not in now}
        assert all((self.places[pair] == self.stock.nobody).all() for pair in gone)

    @precondition(lambda self: self.visit is None)
    @rule(data=st.data())
    def it_is_over(self, data):
        pairs = data.draw(st.sets(st.tuples(st.integers(0, COUNT - 1), st.integers(0, EXPERTS - 1)), max_size=6))
        self.stock.seen(np.array(sorted(pairs), np.int32).reshape(-1, 2))

    @precondition(lambda self: self.visit is None and len(self.held) + sum(map(len, self.booked.values())) < 2)
    @rule(layer=st.integers(0, COUNT - 1), wanted=st.sets(st.integers(0, EXPERTS - 1), min_size=1))
    def the_host_is_asked(self, layer, wanted):
        self.visit, self.group = (self.stock.visit(layer, numbers(*sorted(wanted))), layer, wanted), ()
        self.left = set(wanted)

    @precondition(lambda self: self.visit is not None)
    @rule()
    def a_group_comes(self):
        groups, layer, _ = self.visit
        group = next(groups, None)
        if group is None:
            assert not self.left
            self.visit, self.group = None, ()
            return
        self.group = tuple((layer, int(e)) for e in group)
        assert {e for _, e in self.group} <= self.left
        self.left -= {e for _, e in self.group}

    @precondition(lambda self: self.visit is not None)
    @rule()
    def it_is_given_up(self):
        self.visit[0].close()
        self.visit, self.group = None, ()

    @rule(layer=st.integers(0, COUNT - 1), expert=st.integers(0, EXPERTS - 1))
    def a_copy_to_the_card(self, layer, expert):
        if len(self.held) < 1 and self.stock.hold([(layer, expert)])[0]:
            self.held.append((layer, expert))

    @precondition(lambda self: self.held)
    @rule()
    def it_has_landed(self):
        layer, expert = self.held.pop()
        self.stock.release(layer, numbers(expert))

    @rule(layer=st.integers(0, COUNT - 1), expert=st.integers(0, EXPERTS - 1))
    def something_may_be_wanted(self, layer, expert):
        self.stock.ask(layer, numbers(expert))

    @precondition(lambda self: self.visit is None)
    @rule(layer=st.integers(0, COUNT - 1), wanted=st.lists(st.integers(0, EXPERTS - 1), min_size=1, unique=True))
    def a_prompt_will_want(self, layer, wanted):
        count = self.stock.want(layer, numbers(*wanted))
        assert 0 <= count <= len(wanted)
        if count:
            self.booked.setdefault(layer, set()).update(wanted[:count])
        if count < len(wanted):  # behind the first without a slot some may be here
            extra = {e for e in wanted[count:] if self.stock._booked[layer, e]}
            self.booked.setdefault(layer, set()).update(extra)

    @precondition(lambda self: self.visit is None and any(self.booked.values()))
    @rule(data=st.data())
    def a_prompt_takes(self, data):
        layer = data.draw(st.sampled_from(sorted(i for i, some in self.booked.items() if some)))
        wanted = sorted(self.booked.pop(layer))
        mine = self.stock.take(layer, numbers(*wanted))
        assert mine.tolist() == wanted
        check(self.model, self.stock.addresses, layer, mine)
        self.stock.release(layer, mine)

    @precondition(lambda self: self.visit is None)
    @rule()
    def a_prompt_is_given_up(self):
        self.stock.unbook()
        self.booked = {}

    @rule(count=st.integers(1, 4))
    def reads_end(self, count):
        self.disk.end(count)

    @invariant()
    def what_is_used_has_its_bytes(self):
        for layer, expert in self.shown:  # by the table the device has, whatever came meanwhile
            check(self.model, self.places, layer, [expert])
        for layer, expert in [*self.held, *self.group]:
            check(self.model, self.stock.addresses, layer, [expert])
        with self.stock._lock:  # nothing else lands meanwhile
            here = np.stack([self.stock._room.held.holds(i, np.arange(EXPERTS)) for i in range(COUNT)])
            assert ((self.stock.addresses == self.stock.nobody).all(-1) == ~here).all()
        for layer, expert in np.argwhere(here):
            check(self.model, self.stock.addresses, layer, [expert])

    @invariant()
    def nothing_stays_pinned(self):
        if not self.held and self.visit is None and not any(self.booked.values()):
            with self.stock._lock:
                assert self.stock._room.held.pinned == len(self.stock._coming)


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.usefixtures("model")
class TestMachine(Machine.TestCase):
    """Needs the file."""


def test_all_reads_are_under_way_before_what_is_here_is_given(model):
    gate = threading.Event()
    gate.set()
    with stocked(model, (12, 6), lambda _call, _file, n, _at: gate.wait() and n) as stock:
        list(stock.visit(0, numbers(2, 4)))
        gate.clear()
        groups = stock.visit(0, numbers(*range(6)))
        assert next(groups).tolist() == [2, 4]
        assert sorted(e for _, e in stock._coming) == [0, 1, 3, 5]
        gate.set()
        rest = [group.tolist() for group in groups]
        assert sorted(e for group in rest for e in group) == [0, 1, 3, 5]
        assert (stock.stats.hits, stock.stats.misses, stock.stats.read) == (2, 6, 6 * sum(PARTS[0]))
        assert stock.stats.waited > 0


def test_more_are_wanted_than_there_are_slots(model):
    with stocked(model, (2, 0), only=1, landing=1) as stock:
        list(stock.visit(0, numbers(5)))
        stock.begin(nowhere(1))
        assert stock.shown.sum() == 1
        seen = []
        for group in stock.visit(0, numbers(*range(6))):
            check(model, stock.addresses, 0, group)
            seen += group.tolist()
        assert sorted(seen) == list(range(6))
        assert stock.here(0)[5]  # shown, so it stayed


def test_whoever_lies_on_the_card_goes_first(model):
    with stocked(model, (3, 0), only=1, landing=1) as stock:
        for _ in range(5):
            list(stock.visit(0, numbers(0)))
        list(stock.visit(0, numbers(1, 2)))
        assert stock.here(0).tolist() == [True, True, True, False, False, False]
        elsewhere = nowhere(1)
        elsewhere[0, 0] = True
        stock.begin(elsewhere)
        assert stock.shown[0].tolist() == [False, True, True, False, False, False]
        list(stock.visit(0, numbers(3)))
        assert stock.here(0).tolist() == [False, True, True, True, False, False]


def test_a_disk_that_does_not_answer_is_named_and_comes_back(model):
    gate = threading.Event()
    with stocked(model, (4, 2), lambda _call, _file, n, _at: gate.wait() and n, patience=0.3) as stock:
        try:
            with pytest.raises(
                StorageError, match=r"experts 1, 3 of layer 0 have not come from the disk .*bin at byte"
            ):
                list(stock.visit(0, numbers(1, 3)))
            with pytest.raises(StorageError, match="is the disk still there"):  # the same reads, not new ones
                list(stock.visit(0, numbers(1)))
            assert sorted(stock._coming) == [(0, 1), (0, 3)]
            with pytest.raises(StorageError, match="is the disk still there"):
                stock.take(0, numbers(1))
        finally:
            gate.set()
        for group in stock.visit(0, numbers(1, 3)):
            check(model, stock.addresses, 0, group)
        stock.unbook()
        assert stock._room.held.pinned == 0


def test_whoever_is_not_wanted_any_more_is_not_waited_for(model):
    gate = threading.Event()
    with stocked(model, (4, 2), lambda _call, _file, n, _at: gate.wait() and n) as stock:
        began = time.monotonic()
        try:
            with pytest.raises(StorageError, match="not wanted any more"):
                list(stock.visit(0, numbers(1), lambda: True))
            assert time.monotonic() - began < LONG
        finally:
            gate.set()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENXIO])
def test_a_failing_disk_is_named_and_the_next_visit_is_right(model, number):
    broken = {"now": True}
    with stocked(model, (4, 2), lambda _call, _file, n, _at: -number if broken["now"] else n) as stock:
        with pytest.raises(StorageError, match="reading at byte"):
            list(stock.visit(0, numbers(0, 1)))
        broken["now"] = False
        for group in stock.visit(0, numbers(0, 1)):
            check(model, stock.addresses, 0, group)
        assert stock._room.held.pinned == 0


def test_a_read_ahead_that_failed_is_tried_again(model):
    broken = {"now": True}
    with stocked(model, (24, 6), lambda _call, _file, n, _at: -errno.EIO if broken["now"] else n, landing=8) as stock:
        stock.ask(0, numbers(0))
        end = time.monotonic() + LONG
        while stock._coming and time.monotonic() < end:
            stock.here(0)
            time.sleep(1e-3)
        broken["now"] = False
        assert stock.take(0, numbers(0)).tolist() == [0]
        check(model, stock.addresses, 0, [0])
        stock.release(0, numbers(0))


def test_a_reader_that_dies_is_told_and_reading_goes_on(model, monkeypatch):
    with stocked(model, (4, 2)) as stock:
        runner = pread.runner()
        left = [2]

        def dies(*arguments):
            if left[0]:
                left[0] -= 1
                raise SystemExit("killed")
            return runner(*arguments)

        monkeypatch.setattr(pread, "runner", lambda: dies)
        with pytest.raises(
            StorageError, match=r"experts.bin: a thread failed while it was reading \(SystemExit: killed\)"
        ):
            list(stock.visit(0, numbers(0, 1, 2)))
        left[0] = 0
        for group in stock.visit(0, numbers(0, 1, 2)):
            check(model, stock.addresses, 0, group)


def test_short_reads_leave_no_gap(model):
    with stocked(model, (4, 2), lambda call, _file, n, _at: n if call % 3 == 0 else max(4096, n // 3)) as stock:
        for group in stock.visit(0, numbers(0, 4)):
            check(model, stock.addresses, 0, group)


def test_what_to_begin_with(model):
    worth = np.zeros((COUNT, EXPERTS))
    worth[2, 5] = worth[1, 3] = 1.0
    with stocked(model, (4, 2)) as stock:
        best = [(layer, experts.tolist()) for layer, experts in stock.best(worth)]
        assert best == [(0, [0, 1]), (1, [0, 3]), (2, [0, 5])]
        told = []
        stock.fill(stock.best(worth), told.append)
        assert told[-1].done == told[-1].total
        assert stock.held == stock.slots == 6
        assert stock.best(worth) == []
        check(model, stock.addresses, 2, [0, 5])


def test_landing_slots():
    from strata.memory.tier.stock import _landing

    assert [_landing(n) for n in (1, 3, 8, 400, 16_000)] == [1, 1, 2, 96, 1000]


def test_copies_to_the_card_leave_windows_half_of_the_landing_slots(model):
    with stocked(model, (6, 0), only=1, landing=4) as stock:
        list(stock.visit(0, numbers(*range(6))))
        stock.begin(nowhere(1))
        shown, others = np.flatnonzero(stock.shown[0]), np.flatnonzero(~stock.shown[0])
        assert stock.landing == [0]  # all fit
        stock.landing = [4]
        stock._changed = True
        stock.begin(nowhere(1))
        shown, others = np.flatnonzero(stock.shown[0]), np.flatnonzero(~stock.shown[0])
        assert (len(shown), len(others)) == (2, 4)
        held = stock.hold([(0, int(e)) for e in [*others, *shown]])
        assert held == [True, True, False, False, True, True]
        stock.release(0, np.sort(np.concatenate([others[:2], shown])))
        assert stock._room.held.pinned == 0
