"""A ring whose experts come from a disk first: read ahead in order, waited for only when they are next."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.experts.slots import SlotLayout
from strata.ops.prompt.stream.ring import Ring

LAYOUT = SlotLayout("Q8_0", "Q8_0", "Q8_0", 32, 32)
EXPERTS = 12


class Disk:
    """Experts are numbers; some are on a disk, and as many may be on their way as there is room for."""

    def __init__(self, missing, absent, room, comes, landing=1):
        self._missing, self.room, self._comes = missing, room, comes
        self.landing, self.landed = landing, [[]] * landing
        self.absent = set(absent)  # not in RAM
        self.coming, self.asked, self.brought, self.waits, self.turn = [], [], [], 0, 0

    def begin(self):
        pass

    def missing(self, layer):
        return self._missing[layer]

    def layout(self, layer):  # noqa: ARG002  # all the same
        return LAYOUT

    def number(self, layer, expert):
        """What an expert's bytes are."""
        return 90 * self.turn + 16 * layer + expert

    def ask(self, layer, experts):
        for expert in experts:
            key = layer, expert
            if key in self.absent and key not in self.coming:
                if len(self.coming) == self.room:
                    return False
                self.coming.append(key)
                self.asked.append(key)
        return True

    def there(self, layer, experts):
        if self.coming and self._comes():
            self.absent.discard(self.coming.pop(0))
        return not any((layer, expert) in self.absent for expert in experts)

    def fetch(self, layer, experts, place):
        keys = self.landed[place] = [(layer, expert) for expert in experts]
        self.waits += any(key in self.absent for key in keys)
        self.absent -= set(keys)
        self.coming = [key for key in self.coming if key not in keys]
        self.brought += keys

    def bring(self, layer, ring, count, place, buffers):
        assert len(self.landed[place]) == count
        for key, buffer in zip(self.landed[place], buffers.tolist(), strict=False):
            assert key[0] == layer
            ring[buffer] = self.number(*key)


layers = st.lists(st.lists(st.integers(0, EXPERTS - 1), unique=True, max_size=9).map(sorted), min_size=1, max_size=5)


@settings(max_examples=120, deadline=None)
@given(
    missing=layers, buffers=st.integers(1, 9), room=st.integers(1, 6), landing=st.integers(1, 4), ahead=st.booleans(),
    data=st.data(),
)  # fmt: skip
def test_every_expert_is_in_its_buffer_when_it_is_computed(missing, buffers, room, landing, ahead, data):
    pairs = [(layer, e) for layer, experts in enumerate(missing) for e in experts]
    absent = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    disk = Disk(missing, absent, room, lambda: data.draw(st.booleans()), landing)
    memory = torch.full((buffers * LAYOUT.nbytes,), 255, dtype=torch.uint8)
    ring = Ring(memory, disk, len(missing), EXPERTS)
    for turn in range(2):  # a second pass finds nothing of the first
        disk.turn = turn
        disk.absent, disk.coming, disk.asked, disk.brought = set(absent), [], [], []
        ring.missing()
        ring.begin(missing if ahead else None)
        seen = []
        for layer, experts in enumerate(missing):
            if not ahead:
                ring.want(layer, experts)
            for found in ring.slots(layer):
                slots = found[0] if isinstance(found, tuple) else found
                where = slots.slot_of.tolist()
                here = [e for e in experts if where[e] >= 0 and (slots.data[where[e]] == disk.number(layer, e)).all()]
                seen += [(layer, e) for e in here if (layer, e) not in seen]
        assert seen == pairs
        assert disk.brought == pairs
        assert disk.asked == [key for key in pairs if key in set(disk.asked)]  # in the order in which they are brought
        assert not disk.absent & set(pairs)


def test_what_is_there_does_not_wait_for_the_disk_behind_it():
    """All of a pass is read ahead as far as there is room, and a copy waits for a read only if it is the next one."""
    missing = [[0, 1, 2, 3], [4, 5, 6, 7]]
    disk = Disk(missing, [(0, 2), (0, 3), (1, 4), (1, 5)], 3, lambda: False)
    ring = Ring(torch.zeros(8 * LAYOUT.nbytes, dtype=torch.uint8), disk, 2, EXPERTS, most=2)
    ring.missing()
    ring.begin(missing)
    assert disk.brought == [(0, 0), (0, 1)]
    assert disk.asked == [(0, 2), (0, 3), (1, 4)]
    assert disk.waits == 0
    groups = ring.slots(0)
    next(groups)
    assert disk.waits == 0
    next(groups)
    assert disk.waits == 1
    assert disk.brought == [(0, e) for e in range(4)]
    assert list(groups) == []
    assert disk.asked[-1] == (1, 5)
