"""Copies, what makes slots, and products, on every device that keeps the rules of streams and events."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.experts.slots import SlotLayout
from strata.ops.prompt.stream.ring import Ring
from support.lanes import LooseLanes

LAYOUT = SlotLayout("Q8_0", "Q8_0", "Q8_0", 32, 32)
EXPERTS = 10


def number(layer, expert):
    """What an expert's bytes are."""
    return 1 + EXPERTS * layer + expert


class Numbers:
    """A landing place holds the last experts that were copied to it, when that has happened."""

    def __init__(self, landing):
        self.landing, self._places = landing, [[] for _ in range(landing)]

    def layout(self, layer):  # noqa: ARG002  # all the same
        return LAYOUT

    def ask(self, layer, experts):  # noqa: ARG002  # all are in RAM
        return False

    def there(self, layer, experts):  # noqa: ARG002
        return True

    def fetch(self, layer, experts, place):
        self._places[place] = [number(layer, expert) for expert in experts]

    def bring(self, layer, ring, count, place, buffers):  # noqa: ARG002
        for what, buffer in zip(self._places[place][:count], buffers.tolist(), strict=False):
            ring[buffer] = what


wanted_by = st.lists(st.integers(0, EXPERTS - 1), unique=True, max_size=9).map(sorted)


@settings(max_examples=300, deadline=None)
@given(
    passes=st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(wanted_by, min_size=n, max_size=n), max_size=3)),
    buffers=st.integers(1, 9), most=st.integers(0, 4), landing=st.integers(1, 4), ahead=st.booleans(),
    enough=st.integers(1, 12), data=st.data(),
)  # fmt: skip
def test_whoever_is_computed_is_in_its_buffer(passes, buffers, most, landing, ahead, enough, data):
    """Also in passes after some that were given up in the middle."""
    lanes = LooseLanes(lambda able: data.draw(st.sampled_from([None, *able])))
    layers = Numbers(landing)
    memory = torch.zeros(buffers * LAYOUT.nbytes, dtype=torch.uint8)
    ring = Ring(memory, layers, len(passes[0]) if passes else 1, EXPERTS, most=most, lanes=lanes)
    found, wanted = [], []

    def look(slots, layer, experts):
        where = slots.slot_of.tolist()
        found.extend((layer, e, (slots.data[where[e]] == number(layer, e)).all().item()) for e in experts)

    for missing in passes:
        ring.begin(missing if ahead else None)
        left = enough
        for layer, experts in enumerate(missing):
            if left and not ahead:
                ring.want(layer, experts)
            for slots, some in ring.slots(layer) if left else ():
                wanted += [(layer, e, True) for e in some]
                lanes.computing(partial(look, slots, layer, some))
                left -= 1
                if not left:
                    break
    lanes.drain()
    assert found == wanted


@pytest.mark.parametrize("landing", [1, 3])
def test_copies_go_on_while_the_ring_is_full(landing):
    """As far as there are places: two groups are in the ring, and others behind them."""
    lanes = LooseLanes(lambda able: able[0])
    layers, experts = Numbers(landing), list(range(8))
    ring = Ring(torch.zeros(2 * LAYOUT.nbytes, dtype=torch.uint8), layers, 1, EXPERTS, most=1, lanes=lanes)
    ring.begin([experts])
    assert lanes.done["copies"] == 2 + landing
    next(ring.slots(0))
    assert lanes.done["copies"] == 2 + landing, "what is computed is in the ring"
