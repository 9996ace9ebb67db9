"""The order of copies and products through a ring, run on every device that keeps the rules of streams and events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.prompt.stream.schedule import Schedule


class Device:
    """Two streams that go on whenever they like, but each in order and none past an event that has not come.

    A buffer holds what the last copy into it has brought; a copy takes time, in which the buffer holds nothing of use.
    """

    def __init__(self, ring, choose):
        self.buffers = [None] * ring
        self.copies, self.products = [], []  # handed over, not begun
        self.busy = {"copy": None, "product": None}
        self.landed, self.finished = set(), set()
        self.log, self._choose = [], choose

    def hand_over(self, stream, group):
        (self.copies if stream == "copy" else self.products).append(group)

    def steps(self):
        """What may happen next."""
        found = [(stream, "end") for stream, group in self.busy.items() if group is not None]
        if (
            self.busy["copy"] is None
            and self.copies
            and (self.copies[0].after < 0 or self.copies[0].after in self.finished)
        ):
            found.append(("copy", "begin"))
        if self.busy["product"] is None and self.products and self.products[0].number in self.landed:
            found.append(("product", "begin"))
        return found

    def go_on(self, at_least_one=False):
        while steps := self.steps():
            if not at_least_one and not self._choose([True, False]):
                return
            at_least_one = False
            self.step(*self._choose(steps))

    def drain(self):
        while steps := self.steps():
            self.step(*self._choose(steps))

    def step(self, stream, what):
        if what == "begin":
            group = (self.copies if stream == "copy" else self.products).pop(0)
            self.busy[stream] = group
            if stream == "copy":
                reading = self.busy["product"]
                for b in group.buffers:
                    assert reading is None or b not in reading.buffers, "overwritten while it is read"
                    self.buffers[b] = None
            else:
                self.check(group)
            return
        group, self.busy[stream] = self.busy[stream], None
        if stream == "copy":
            for e, b in zip(group.experts, group.buffers, strict=True):
                self.buffers[b] = (group.layer, e)
            self.landed.add(group.number)
        else:
            self.check(group)
            self.finished.add(group.number)
            self.log += [(group.layer, e) for e in group.experts]

    def check(self, group):
        for e, b in zip(group.experts, group.buffers, strict=True):
            assert self.buffers[b] == (group.layer, e), "read before it came, or after it was overwritten"


missing = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=17), min_size=1, max_size=6)


@settings(max_examples=120, deadline=None)
@given(layers=missing, ring=st.integers(1, 12), most=st.integers(0, 14), ahead=st.booleans(), data=st.data())
def test_nothing_is_read_early_or_overwritten_late(layers, ring, most, ahead, data):
    schedule = Schedule(ring, most)
    device = Device(ring, lambda options: data.draw(st.sampled_from(options)))
    if ahead:
        for layer, experts in enumerate(layers):
            schedule.add(layer, experts)
    seen = []
    for layer, experts in enumerate(layers):
        if not ahead:
            schedule.add(layer, experts)
        for group in schedule.ready():
            device.hand_over("copy", group)
        device.go_on()
        for group in schedule.groups(layer):
            assert len(group.experts) <= schedule.most <= ring
            seen += group.experts
            device.hand_over("product", group)
            schedule.computed(group)
            for one in schedule.ready():
                device.hand_over("copy", one)
            device.go_on()
    assert schedule.done
    device.drain()
    wanted = [(layer, e) for layer, experts in enumerate(layers) for e in experts]
    assert device.log == wanted
    assert seen == [e for _, e in wanted]
    assert not device.copies
    assert not device.products


def test_the_next_layers_first_experts_come_under_this_layers_products():
    schedule = Schedule(6, 2)
    for layer in range(2):
        schedule.add(layer, [0, 1, 2, 3])
    assert [(g.layer, g.experts) for g in schedule.ready()] == [(0, (0, 1)), (0, (2, 3)), (1, (0, 1))]
    first, second = schedule.groups(0)
    assert schedule.ready() == []
    schedule.computed(first)
    (group,) = schedule.ready()
    assert (group.layer, group.experts, group.buffers, group.after) == (1, (2, 3), (0, 1), 0)
    schedule.computed(second)
    assert not schedule.done


def test_groups_are_computed_in_order_and_after_their_copies():
    schedule = Schedule(2, 1)
    schedule.add(0, [5, 6])
    first, second = schedule.groups(0)
    with pytest.raises(AssertionError, match="in order"):
        schedule.computed(first)
    schedule.ready()
    with pytest.raises(AssertionError, match="in order"):
        schedule.computed(second)


def test_groups_are_of_about_one_size():
    schedule = Schedule(30, 10)
    schedule.add(0, list(range(21)))
    assert [len(group.experts) for group in schedule.groups(0)] == [7, 7, 7]
    assert Schedule(30).most == 10
    assert Schedule(2).most == 1
