"""Pinned blocks of what is kept: pinned and unpinned exactly once, never more than the limit unless in use, reused."""

import gc
import threading

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.memory.errors import ScarceError
from strata.model.memory import laid, layout, neighbours, taken, together
from strata.ops.gpu import blocks
from strata.ops.gpu.blocks import GRAIN, SMALL, Blocks
from support.pins import Event, Runtime

MB = 1 << 20


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    monkeypatch.setattr(blocks, "LARGE", 4 * MB)


def made(limit=64 * MB, **how):
    runtime = Runtime(**how)
    found = Blocks(runtime)
    found.keep_within(limit)
    return found, runtime


def test_what_is_free_serves_contents_of_its_size() -> None:
    memory, runtime = made()
    one = memory.empty(3 * MB)
    assert runtime.pinned == {one.data_ptr(): 3 * MB}
    assert one.untyped_storage().nbytes() == memory.lent == 3 * MB
    place = one.data_ptr()
    view = one[5:].view(torch.uint8)[10:]
    del one
    memory.tidy()
    assert memory.lent == 3 * MB, "a view of it is in use"
    del view
    memory.tidy()
    assert (memory.lent, memory.nbytes) == (0, 3 * MB)
    again = memory.empty(3 * MB - 1000)
    assert again.data_ptr() == place
    assert taken([again]) == 3 * MB, "who counts memory counts all of it"
    assert memory.empty(2 * MB).data_ptr() != place
    del again
    assert memory.empty(2 * MB).data_ptr() != place, "that would waste a third"
    assert runtime.calls == 2


def test_what_is_too_much_goes_the_longest_unused_first() -> None:
    memory, runtime = made(limit=5 * MB)
    held = [memory.empty(size * MB) for size in (3, 2, 1)]
    places = [one.data_ptr() for one in held]
    assert memory.nbytes == 6 * MB, "what is in use is in use"
    while held:
        held.pop(0)
        memory.tidy()
    assert set(runtime.pinned) == set(places[1:])
    assert memory.nbytes == 3 * MB
    other = memory.empty(4 * MB)
    assert set(runtime.pinned) == {places[2], other.data_ptr()}, "free blocks make room for a new one"
    memory.keep_within(0)
    del other
    memory.tidy()
    assert not runtime.pinned
    assert memory.nbytes == 0


def test_little_is_not_worth_a_call_of_the_driver() -> None:
    memory, runtime = made()
    assert len(memory.empty(SMALL - 1)) == SMALL - 1
    assert not runtime.calls
    assert memory.empty(SMALL + 1).untyped_storage().nbytes() == SMALL + GRAIN


def test_refused_once_it_is_said_once_and_memory_is_ordinary(caplog) -> None:
    memory, runtime = made(refuse_from=2)
    one, two, three = (memory.empty(MB) for _ in range(3))
    assert runtime.calls == 2
    assert set(runtime.pinned) == {one.data_ptr()}
    for tensor in (one, two, three):
        tensor.fill_(7)
    assert len([record for record in caplog.records if "does not pin 1048576 bytes more" in record.message]) == 1
    assert "--cache-ram" in caplog.text
    del one, two, three, tensor
    memory.keep_within(0)
    memory.tidy()
    assert not runtime.pinned
    assert memory.nbytes == 0


def test_where_the_system_gives_no_more_memory_is_ordinary(monkeypatch, caplog) -> None:
    def scarce(*_arguments, **_more):
        raise ScarceError("5 bytes of memory cannot be had: no")

    monkeypatch.setattr(blocks, "Region", scarce)
    memory, runtime = made()
    assert len(memory.empty(MB)) == MB
    assert not runtime.calls
    assert "cannot be had" in caplog.text


def test_pinning_may_be_left_to_another_thread() -> None:
    memory, runtime = made()
    one = memory.empty(MB, later=True)
    assert not runtime.calls
    for part in (one, one[100:]):
        thread = threading.Thread(target=memory.ready, args=(part,))
        thread.start()
        thread.join()
    assert runtime.calls == 1
    assert runtime.pinned
    memory.ready(torch.empty(5, dtype=torch.uint8))


def test_what_the_device_still_reads_is_in_use() -> None:
    event = Event()
    runtime = Runtime()
    memory = Blocks(runtime, lambda: event)
    memory.keep_within(MB)
    one = memory.empty(MB)
    memory.hold([one[:10], one[20:]])
    place = one.data_ptr()
    del one
    memory.tidy()
    assert memory.empty(MB).data_ptr() != place
    event.over = True
    memory.tidy()
    assert memory.lent == 0


def test_the_last_reference_may_be_dropped_anywhere() -> None:
    memory, runtime = made()
    kept = [memory.empty(MB)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert memory.empty(MB).data_ptr() in runtime.pinned
    assert runtime.calls == 1
    circle = [memory.empty(MB)]
    circle.append(circle)
    del circle
    gc.collect()
    memory.tidy()
    assert memory.lent == 0


def test_blocks_that_nobody_gives_back_are_unpinned_with_their_owner() -> None:
    memory, runtime = made()
    one, two = memory.empty(MB), memory.empty(MB)
    del two
    memory.tidy()
    del memory
    gc.collect()
    assert not runtime.pinned
    assert one.fill_(3).sum() == 3 * MB


def test_tensors_lie_one_behind_the_other() -> None:
    memory, _ = made()
    like = {
        "a": (torch.float32, (4, 5)), "b": (torch.float32, (4, 5)), "c": (torch.uint8, (0, 3)),
        "d": (torch.bfloat16, (2,)),
        "e": (torch.float32, (16, 5)), "f": (torch.float32, (16, 5)),
    }  # fmt: skip
    assert layout(like.values()) == ([0, 128, 256, 256, 320, 640], 960)
    found = together(memory, like)
    assert {name: (one.dtype, tuple(one.shape)) for name, one in found.items()} == like
    assert neighbours([found["a"], found["b"]]) is None, "there are blanks between them"
    both = neighbours([found["e"], found["f"]])
    both[1, 3] = 5
    assert (found["f"][3] == 5).all()
    assert neighbours([found["f"], found["e"]]) is None
    assert neighbours([found["e"][:8], found["f"][:8]]) is None
    assert neighbours([found["e"].T]) is None
    assert neighbours([torch.zeros(3), torch.zeros(3)]) is None
    assert taken(found.values()) == 960
    assert taken([*laid(torch.empty(1000, dtype=torch.uint8), like).values(), torch.empty(3)]) == 1012


class BlocksMachine(RuleBasedStateMachine):
    """Contents come, are looked at in parts, held by a device and dropped, beside a dictionary of their bytes."""

    @initialize(limit=st.integers(0, 12))
    def begin(self, limit: int) -> None:
        self.runtime, self.events = Runtime(), []
        self.memory = Blocks(self.runtime, self.mark)
        self.limit = limit * MB
        self.memory.keep_within(self.limit)
        self.held: dict[int, tuple[torch.Tensor, int]] = {}
        self.count = 0

    def mark(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    @rule(nbytes=st.integers(1, 48).map(lambda n: n * 100_000), later=st.booleans())
    def take(self, nbytes: int, later: bool) -> None:
        self.count += 1
        one = self.memory.empty(nbytes, later=later)
        assert len(one) == nbytes
        one.fill_(self.count % 251)
        if later:
            self.memory.ready(one)
        self.held[self.count] = one, self.count % 251

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data) -> None:
        del self.held[data.draw(st.sampled_from(sorted(self.held)))]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def part(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        one, value = self.held[number]
        self.held[number] = one[len(one) // 3 :], value

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def copy_to_device(self, data) -> None:
        one, _ = self.held[data.draw(st.sampled_from(sorted(self.held)))]
        self.memory.hold([one])

    @precondition(lambda self: self.events)
    @rule()
    def device_goes_on(self) -> None:
        self.events.pop(0).over = True

    @rule(limit=st.integers(0, 12))
    def other_limit(self, limit: int) -> None:
        self.limit = limit * MB
        self.memory.keep_within(self.limit)

    @rule()
    def tidy(self) -> None:
        self.memory.tidy()
        assert self.memory.nbytes <= max(self.limit, self.memory.lent)

    @invariant()
    def nothing_is_mixed_up(self) -> None:
        if not hasattr(self, "memory"):
            return
        for one, value in self.held.values():
            assert (one == value).all()
        assert sum(self.runtime.pinned.values()) == self.memory.nbytes, "what is pinned is what there is"

    def teardown(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.held.clear()
        for event in self.events:
            event.over = True
        self.memory.keep_within(0)
        self.memory.tidy()
        assert self.memory.nbytes == self.memory.lent == 0
        assert not self.runtime.pinned


TestBlocks = BlocksMachine.TestCase
TestBlocks.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
