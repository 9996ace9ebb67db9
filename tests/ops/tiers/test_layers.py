"""Layers whose experts are not all on the device: the judge's rows from every tier, and every fault lets go."""

import time
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import TierError
from strata.experts.kernels.cached import task_function
from strata.experts.misses import Costs
from strata.experts.pool.atomics import load, pause
from strata.experts.pool.region import LOST
from strata.ops.gpu.branches import Branches
from strata.ops.tiers.bring import DOWN, GATE_UP
from strata.ops.tiers.layer import LayerTier
from support.launch import NATIVE
from support.tiered import tiered
from support.tiers import Told

# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

HOST, LINK, BOTH = Costs(1.0, 1e6), Costs(1e6, 1.0), Costs(1.0, 1.0)


def _holds(found):
    for got, expected, _ in found:
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("residents", "costs", "rows", "kinds"),
    [
        (0, HOST, 3, ("Q8_0", "Q8_0", "Q8_0")),
        (0, LINK, 2, ("Q8_0", "Q8_0", "Q8_0")),
        (2, BOTH, 3, ("Q8_0", "Q8_0", "Q8_0")),
        (2, BOTH, 1, ("NVFP4", "NVFP4", "NVFP4")),
        (6, BOTH, 2, ("Q8_0", "Q8_0", "Q8_0")),
    ],
)
def test_rows_are_the_judges_wherever_they_were_computed(residents, costs, rows, kinds):
    inner = 64 if "NVFP4" in kinds else 32
    made = tiered([(i, e) for i in range(2) for e in range(residents)], costs=costs, kinds=kinds, inner=inner)
    try:
        found = made.window(rows)
        made.tier.settled()
        _holds(found)
        last = made.tier.last
        assert last.experts == last.resident + last.link + last.host > 0
        assert last.layers == 2
        if residents == 6:
            assert (last.whole, last.waits, last.link + last.host) == (2, 0, 0)
            assert made.tier.host.stats().messages == 0  # nobody was asked
        elif costs is HOST:
            assert last.host > 0 == last.link
            assert made.tier.host.stats().experts == last.host
        elif costs is LINK:
            assert last.link > 0
        visits = made.cache.visits[-1]
        assert len(visits) == last.experts
        assert visits[:, 2].sum() == 2 * rows * made.topk
    finally:
        made.close()


class _Late(Branches):
    """Every branch does its work when somebody waits for its end; urgent ones all but downs of experts before."""

    def __init__(self):
        super().__init__(graphs=False)
        self.deferred = []

    def begin(self, _, body, *, urgent=False):
        if not urgent:
            return body
        body()
        return lambda: [one() for one in self.deferred]


def test_downs_may_come_when_products_with_gates_and_ups_are_done(monkeypatch):
    made = tiered([], costs=LINK)
    late = made.visits._branches = _Late()
    brought, bring = [], LayerTier.fetch

    def deferring(self, plan, parts):
        brought.append(parts)
        run = partial(bring, self, plan, parts)
        late.deferred.append(run) if parts == DOWN else run()

    monkeypatch.setattr(LayerTier, "fetch", deferring)
    try:
        for _ in range(3):  # places of the link hold earlier experts' downs
            _holds(made.window(2))
            late.deferred.clear()
        made.tier.settled()
        assert made.tier.last.link > 0
        assert brought == [GATE_UP, DOWN] * 6
    finally:
        made.close()


def test_residency_changes_between_windows_and_rows_do_not():
    """Moves evict, are on their way, land; shares change: always the judge's rows."""
    made = tiered([(0, 0), (1, 1)], slots=3)
    rng = np.random.default_rng(5)
    hits = set()
    try:
        for window in range(4):
            made.tier.share_out((HOST, LINK, BOTH)[window % 3])
            found = made.window(int(rng.integers(1, 3)))
            made.cache.next = [
                Told(int(rng.integers(2)), e, slot)
                for slot, e in enumerate(rng.permutation(6)[: int(rng.integers(1, 4))])
            ]
            made.tier.settled()
            _holds(found)
            hits.add(made.tier.last.resident)
            there = made.cache.slot_of
            assert np.unique(there[there >= 0]).size == (there >= 0).sum()
        assert len(hits) > 1
    finally:
        made.close()


def _swapped(made, layer, code):
    descriptor = made.tier.host._desk._layers[layer].down
    words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 11).from_address(descriptor.address))
    before, words[4] = int(words[4]), code
    return words, before


def _until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def test_a_dead_worker_fails_the_window_and_the_next_is_right():
    lost = LOST
    die = task_function(lambda task, first, last: lost)  # noqa: ARG005
    made = tiered([], costs=HOST, cpus=(None, None))
    try:
        words, before = _swapped(made, 1, die.address)
        found = made.window(2)
        words[4] = before
        assert found[0][0].tobytes() == found[0][1].tobytes()  # the layer before was answered
        assert np.isnan(found[1][0]).all()  # nothing that was not computed looks like a row
        with pytest.raises(TierError, match=r"a worker thread ended .* layer 1, experts \d"):
            made.tier.settled()
        _until(lambda: made.tier.host.running)
        _holds(made.window(2))
        made.tier.settled()
    finally:
        made.close()


@pytest.mark.skipif(NATIVE, reason="patience is counted in looks")
def test_a_stalled_worker_is_given_up_and_waited_for_before_the_next_window():
    gate = np.zeros(1, np.int64)
    at = gate.ctypes.data

    def stall(task, first, last):  # noqa: ARG001
        while load(at) == 0:
            pause()
        return 0

    code = task_function(stall)
    made = tiered([], costs=HOST, looks=5000)
    try:
        words, before = _swapped(made, 0, code.address)
        found = made.window(1)
        assert np.isnan(found[0][0]).all()
        assert np.isnan(found[1][0]).all()  # after a fault nothing is asked for
        _until(lambda: made.tier.host.busy)
        with pytest.raises(
            TierError, match=r"did not answer in time: layer 0, .* it has been at computing for .* still at"
        ):
            made.tier.settled()
        with pytest.raises(TierError, match="still at an earlier window"):
            made.tier.begin()
        words[4] = before
        gate[0] = 1
        _until(lambda: not made.tier.host.busy)
        made.tier.state[4] = 10_000_000
        _holds(made.window(1))
        made.tier.settled()
    finally:
        gate[0] = 1
        made.close()


@pytest.mark.skipif(NATIVE, reason="patience is counted in looks")
def test_a_dead_loop_is_given_up_and_started_again():
    made = tiered([], costs=HOST, looks=200)
    made.tier.host.close()
    try:
        made.tier.begin = lambda: None  # it dies behind the check
        found = made.window(1)
        assert np.isnan(found[0][0]).all()
        with pytest.raises(TierError, match="the host loop is not running"):
            made.tier.settled()
        del made.tier.begin
        made.tier.state[4] = 10_000_000
        _holds(made.window(1))
        made.tier.settled()
    finally:
        made.close()


def test_numbers_that_are_none_stay_with_their_row():
    """A row of no numbers is its conversation's error, not the window's: the host computes what it is given."""
    made = tiered([], costs=HOST)

    def spoil(a):
        a.s[1, 0] = torch.nan

    try:
        found = made.window(2, spoil)
        made.tier.settled()
        for got, expected, _ in found:
            assert got[: made.topk].tobytes() == expected[: made.topk].tobytes()
            assert np.isnan(got[made.topk :]).all()
    finally:
        made.close()
