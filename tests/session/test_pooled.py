"""Conversations in a device's memory: kept, parked, stored and set aside as on the CPU, with the same answers."""

import gc
import logging
import random
import time
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.engine import Chooser, Drafting, FinishReason, Request, Sampling
from strata.engine.drafting.drafter import Guesser
from strata.errors import RequestError, TierError
from strata.loading.cache import cached_as
from strata.model import Network, snapshot
from strata.model.snapshot import SnapshotError
from strata.ops import bind
from strata.ops.gpu import blocks
from strata.ops.gpu import parts as gpu_parts
from strata.ops.gpu.blocks import Blocks
from strata.ops.gpu.pool import PAGE, Pool, pool_bytes
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.network import network, prompt
from support.pins import Event, Runtime
from support.pooled import pooled
from support.serving import Alone, answer, drain, finish, ids, run

STEP = 64


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def alone():
    return Alone(network("other"))


def request(name, text, count, **more):
    return Request(name, tuple(text), more.pop("sampling", Sampling()), max_tokens=count, **more)


def in_eight_bits(net):
    """The network with keys and values in q8."""
    config = cached_as(net.config, "q8")
    return replace(net, config=config, ops=bind("cpu", config))


@pytest.mark.parametrize("kv", ["f32", "q8"])
def test_a_conversation_goes_on_from_memory_and_from_files(tmp_path, monkeypatch, kv) -> None:
    monkeypatch.setattr(gpu_parts, "STAGING", 40_000)  # several pieces
    plain = network("other") if kv == "f32" else in_eight_bits(network("other"))
    alone = Alone(plain)
    text = prompt("other", 150)
    options = Options(folder=tmp_path, reserve=0, rows=STEP, step=STEP)
    for turn, ram in enumerate((1 << 30, 0, 1 << 30)):
        net = pooled(plain, slots=3, cells=1024)
        scheduler = Scheduler(net, replace(options, ram=ram))
        for again in range(2):
            asked = request(f"{turn}-{again}", text, 5)
            events = run(scheduler, asked)[asked.id]
            assert answer(events) == alone(asked)
            assert (finish(events).usage.cached_tokens > 100) == (turn + again > 0)
            text = [*text, *ids(events), 4, 5, 6]
        assert net.ops.pool.fits([(None, 64)] * 3), "ended conversations leave the device"
        scheduler.close()


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), TierError("a window was given up")], ids=["bug", "ours"])
@pytest.mark.parametrize("where", [(Network, "read"), (Network, "window"), (Guesser, "guess"), (Chooser, "verify")])
def test_an_answer_that_an_error_ends_leaves_the_device_at_once(monkeypatch, where, error) -> None:
    """Its error is kept by whoever asked; what it was raised in is not, and neither are its cells."""
    net = pooled(network("other"), slots=2, cells=256)
    scheduler = Scheduler(net, Options(slots=2, keep=False, rows=STEP))
    owner, name = where
    monkeypatch.setattr(logging.getLogger("strata.session"), "disabled", True)  # pytest keeps what it hears

    def failing(*_arguments, **_more):
        raise error from KeyError("on the way")

    found = []
    gc.collect()
    gc.disable()
    try:
        for turn in range(3):
            with monkeypatch.context() as patch:
                if turn < 2:
                    patch.setattr(owner, name, failing)
                drafting = Drafting(depth=2)
                found += [run(scheduler, request(f"{turn}", prompt("other", 100), 4, drafting=drafting))[f"{turn}"]]
            assert net.ops.pool.free_cells == net.ops.pool.cells, "nothing is left on the device"
            assert net.ops.pool.fits([(None, 64)] * 2)
    finally:
        gc.enable()
    assert [finish(events).reason.name for events in found] == ["ERROR", "ERROR", "LENGTH"]
    assert str(error) in str(finish(found[0]).error)


def test_what_is_kept_lies_in_pinned_blocks_within_the_budget(tmp_path) -> None:
    """All of it and nothing else; blocks go when parts go, and the device has read them."""
    net, runtime, events = pooled(network("other"), slots=3, cells=1024), Runtime(), []

    def mark() -> Event:
        events.append(Event())
        return events[-1]

    memory = net.ops.pool.memory = Blocks(runtime, mark)
    texts = [prompt("other", 150, seed=seed) for seed in range(3)]
    texts.append([*texts[0][:100], *texts[1][:50]])  # parts in the middle of an edge
    ram = 700_000
    scheduler = Scheduler(net, Options(folder=tmp_path, reserve=0, rows=STEP, step=STEP, ram=ram))
    store, alone, back = scheduler._store, Alone(network("other")), 0
    for turn in range(12):
        asked = request(f"{turn}", texts[turn % 4], 3)
        events_of = run(scheduler, asked)[asked.id]
        assert answer(events_of) == alone(asked)
        back += finish(events_of).usage.cached_tokens > 0
        while store._folder.pending:
            time.sleep(0.001)
        for event in events:
            event.over = True
        store.trim()
        store.catch_up()
        parts = [part for node in store._tree for part in (node.rows, node.checkpoint) if part and part.content]
        assert memory.lent == sum(part.bytes for part in parts) == store.ram_bytes <= ram
        assert memory.nbytes == sum(runtime.pinned.values()) <= ram
    assert back >= 8
    assert store.counts.restored > 0, "some came from files"
    scheduler.close()


def test_files_of_the_other_device_are_kept_apart(tmp_path) -> None:
    options, text = Options(folder=tmp_path, reserve=0, rows=STEP, step=STEP), prompt("other", 100)
    cached = []
    for net in (network("other"), pooled(network("other"), slots=2, cells=1024), network("other")):
        scheduler = Scheduler(net, options)
        cached.append(finish(run(scheduler, request("a", text, 2))["a"]).usage.cached_tokens)
        scheduler.close()
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


def test_a_scale_that_is_no_number_is_not_kept() -> None:
    net = pooled(in_eight_bits(network("other")), slots=2, cells=128)
    state = net.new_state()
    net.read(state, prompt("other", 20))
    ratio = net.config.qsa.ratio
    assert snapshot.cut(state, 0, 20, ratio).tables["layer.3.k"].dtype == torch.uint8
    net.ops.pool.values[0][state.pages[0], 7, 0, 0, :4] = torch.tensor([0, 0, 192, 127], dtype=torch.uint8)
    with pytest.raises(SnapshotError, match=r"layer\.\d+\.v of a state of 20 tokens is not finite"):
        snapshot.cut(state, 0, 20, ratio)


def test_more_than_fits_takes_turns(alone) -> None:
    chance = random.Random(3)
    net = pooled(network("other"), slots=8, cells=5 * PAGE)
    scheduler = Scheduler(net, Options(rows=STEP, step=STEP))
    asked = [request(f"{i}", prompt("other", chance.choice([3, 60, 120]), seed=i), 70) for i in range(5)]
    set_aside = []

    def before(tick: int) -> None:
        if tick < len(asked):
            scheduler.submit(asked[tick])
        set_aside.append(sum(one.aside is not None for one in scheduler._all.values()))

    found = drain(scheduler, before)
    assert max(set_aside) >= 1
    for one in asked:
        assert answer(found[one.id]) == alone(one)
    assert net.ops.pool.free_cells == net.ops.pool.cells


def test_one_that_cannot_be_set_aside_ends_alone(alone) -> None:
    net = pooled(network("other"), slots=2, cells=3 * PAGE)
    scheduler = Scheduler(net, Options(keep=False))
    old, young = request("old", prompt("other", 60), 40), request("young", prompt("other", 60, seed=2), 40)
    scheduler.submit(old)
    scheduler.submit(young)

    def before(_tick: int) -> None:
        conversation = scheduler._all.get("young")
        if conversation and conversation.generation and conversation.generation.state.length == 63:
            state = conversation.generation.state
            net.ops.pool.states[state.place, 0, 0, 0, 0] = torch.nan

    found = drain(scheduler, before)
    assert answer(found["old"]) == alone(old)
    assert finish(found["young"]).reason is FinishReason.ERROR


def test_a_full_pool_says_so() -> None:
    net = pooled(network("other"), slots=2, cells=2 * PAGE)
    pool = net.ops.pool
    one, two, three = (pool.new_state() for _ in range(3))
    pool.reserve(one, 1)
    with pytest.raises(RequestError, match="128 more cells are needed, 64 of 128 are free"):
        pool.reserve(two, 65)
    assert not two.seat, "what cannot be had whole is not had in part"
    pool.reserve(two, 64)
    with pytest.raises(RequestError, match="all 2 places"):
        pool.reserve(three, 0)
    with pytest.raises(RequestError, match="all 2 places"):
        one.clone()


def test_abandoned_windows_cost_nothing() -> None:
    pool = pooled(network("other"), slots=2, cells=128).ops.pool
    states = [pool.new_state() for _ in range(2)]
    for state in states:
        pool.reserve(state, 1)
    for _ in range(5):
        taken = {pool.spare() for _ in range(pool.slots)}
        assert len(taken) == 2, "a window has no more conversations than there are"
        assert not taken & {state.place for state in states}
    adopted = pool.spare()
    pool.give_back(states[0].place)
    states[0].home[0] = adopted
    for _ in range(20):
        assert pool.spare() not in {state.place for state in states}


def test_its_size_is_known_before_it_is_made() -> None:
    config = network("base").config
    pool = Pool(config, torch.device("cpu"), slots=3, cells=200, kv=torch.float32)
    tensors = [pool.states, pool.tails, pool.table, pool.ngram_tails, pool.history]
    tensors += [*pool.keys, *pool.values, pool.raw, *pool.blocks]
    assert sum(t.nbytes for t in tensors) == pool_bytes(config, slots=3, cells=200, kv=torch.float32)


class PoolMachine(RuleBasedStateMachine):
    """Conversations come, grow, are copied, go to the CPU and back, and end, beside a dictionary of their contents."""

    @initialize()
    def begin(self) -> None:
        self.config = network("other").config
        self.pool = Pool(self.config, torch.device("cpu"), slots=3, cells=6 * PAGE, kv=torch.float32)
        self.runtime, self.events, self.limit = Runtime(), [], 200_000
        self.memory = self.pool.memory = Blocks(self.runtime, self.mark)
        self.memory.keep_within(self.limit)
        self.states: dict[int, object] = {}
        self.contents: dict[int, dict[str, torch.Tensor]] = {}
        self.saved: list[tuple[snapshot.Span, snapshot.Checkpoint, dict[str, torch.Tensor]]] = []
        self.count = 0

    def mark(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def forget(self, data) -> None:
        """Of what is kept; the device may still be copying from it."""
        self.saved.pop(data.draw(st.integers(0, len(self.saved) - 1)))

    @precondition(lambda self: self.events)
    @rule()
    def device_goes_on(self) -> None:
        self.events.pop(0).over = True

    def pages(self) -> int:
        return sum(-(-state.length // PAGE) for state in self.states.values())

    def put(self, state, known) -> None:
        self.count += 1
        self.states[self.count], self.contents[self.count] = state, known

    @rule(cells=st.integers(1, 200))
    def new(self, cells: int) -> None:
        full = len(self.states) == 3 or self.pages() + -(-cells // PAGE) > 6
        state = self.pool.new_state()
        assert self.pool.fits([(state, cells)]) is not full
        if full:
            with pytest.raises(RequestError):
                self.pool.reserve(state, cells)
            return
        self.put(state, {})
        self.fill(self.count, cells)

    def fill(self, number: int, cells: int) -> None:
        """Random numbers behind the end, in all of a conversation's memory."""
        state, pool = self.states[number], self.pool
        pool.reserve(state, cells)
        before, state.length = state.length, cells
        state.next_position = cells
        ratio = self.config.qsa.ratio
        for table, step in ((pool.keys, 1), (pool.values, 1), (pool.blocks, ratio)):
            for one in table:
                for row in range(before // step, cells // step):
                    page, at = divmod(row, one.shape[1])
                    one[state.pages[page], at] = torch.rand(one.shape[2:])
        pool.states[state.place] = torch.rand(pool.states.shape[1:])
        pool.tails[state.slot] = torch.rand(pool.tails.shape[1:])
        pool.raw[:, state.slot] = torch.rand(pool.raw[:, 0].shape)
        pool.ngram_tails[state.slot] = torch.rand(pool.ngram_tails.shape[1:])
        pool.history[state.slot] = torch.randint(0, 99, pool.history.shape[1:], dtype=torch.int32)
        self.contents[number] = dict(state.tensors())

    @precondition(lambda self: self.states)
    @rule(data=st.data(), more=st.integers(1, 90))
    def grow(self, data, more: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        state = self.states[number]
        cells = state.length + more
        if self.pages() - -(-state.length // PAGE) + -(-cells // PAGE) > 6:
            assert not self.pool.fits([(state, cells)])
            with pytest.raises(RequestError):
                self.pool.reserve(state, cells)
        else:
            old = self.contents[number]
            self.fill(number, cells)
            for name, rows in old.items():
                if name.endswith((".k", ".v", ".blocks")):
                    assert torch.equal(self.contents[number][name][: len(rows)], rows), "cells before stay"

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def copy(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        state = self.states[number]
        if len(self.states) == 3 or self.pages() + -(-state.length // PAGE) > 6:
            with pytest.raises(RequestError):
                state.clone()
        else:
            self.put(state.clone(), self.contents[number])

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def save(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        state, ratio = self.states[number], self.config.qsa.ratio
        at = data.draw(st.integers(1, state.length))
        spans = [snapshot.cut(state, 0, at, ratio)]
        spans += [snapshot.cut(state, at, state.length, ratio)] if at < state.length else []
        self.saved.append((spans, snapshot.checkpoint(state), self.contents[number]))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def restore(self, data) -> None:
        spans, end, known = self.saved[data.draw(st.integers(0, len(self.saved) - 1))]
        state = self.pool.new_state()
        if len(self.states) == 3 or self.pages() + -(-end.length // PAGE) > 6:
            with pytest.raises(RequestError):
                snapshot.fill(state, spans, end, self.config.qsa.ratio)
        else:
            snapshot.fill(state, spans, end, self.config.qsa.ratio)
            self.put(state, known)

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def end(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        del self.states[number], self.contents[number]

    @invariant()
    def contents_stay(self) -> None:
        if not hasattr(self, "states"):
            return
        for number, state in self.states.items():
            found = dict(state.tensors())
            assert found.keys() == self.contents[number].keys()
            assert all(torch.equal(found[name], self.contents[number][name]) for name in found)
        pages = [page for state in self.states.values() for page in state.pages]
        assert len(set(pages)) == len(pages) == self.pages()
        assert self.pool.free_cells == (6 - len(pages)) * PAGE
        self.memory.tidy()
        kept = [one for spans, end, _ in self.saved for one in (*spans, end)]
        assert self.memory.lent >= sum(one.bytes for one in kept if one.bytes >= blocks.SMALL)
        assert self.memory.nbytes == sum(self.runtime.pinned.values()) <= max(self.limit, self.memory.lent)

    def teardown(self) -> None:
        if not hasattr(self, "states"):
            return
        self.saved.clear()
        self.contents.clear()
        for event in self.events:
            event.over = True
        self.memory.tidy()
        assert self.memory.lent == 0


@pytest.fixture(autouse=True)
def pinned_in_pages(monkeypatch):
    monkeypatch.setattr(blocks, "SMALL", 1)
    monkeypatch.setattr(blocks, "GRAIN", 4096)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)


def test_parts_of_another_type_are_refused() -> None:
    config = network("other").config
    pools = [Pool(config, torch.device("cpu"), slots=2, cells=128, kv=kv) for kv in (torch.float32, torch.bfloat16)]
    state = pools[0].new_state()
    pools[0].reserve(state, 64)
    state.length = 64
    with pytest.raises(SnapshotError, match=r"expected torch\.bfloat16"):
        snapshot.fill(pools[1].new_state(), [snapshot.cut(state, 0, 64, 4)], snapshot.checkpoint(state), 4)


def test_numbers_that_are_not_finite_are_not_kept() -> None:
    pool = pooled(network("other"), slots=2, cells=128).ops.pool
    state = pool.new_state()
    pool.reserve(state, 64)
    state.length = 64
    with pytest.raises(SnapshotError, match=r"layer\.\d+\.blocks, layer\.\d+\.k, .* is not finite"):
        snapshot.cut(state, 0, 64, 4)
    snapshot.checkpoint(state)
    pool.reserve(state, 65)
    state.length = 65  # a block is open
    with pytest.raises(SnapshotError, match=r"layer\.\d+\.ik.* of a state of 65 tokens is not finite"):
        snapshot.checkpoint(state)
    state.length = 64
    for name, part in (("s", pool.states[state.place]), ("tail", pool.tails[state.slot])):
        part[1].view(-1)[3] = torch.inf
        with pytest.raises(SnapshotError, match=rf"^layer\.1\.{name} of a state of 64 tokens is not finite"):
            snapshot.checkpoint(state)
        part[1] = 0.0
