"""A layer of a prompt whose experts come through a ring: the bytes of the layer that has them all."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.ops.prompt import grouped
from strata.ops.prompt.stream.lanes import InOrder
from strata.ops.prompt.stream.ring import Ring
from strata.ops.prompt.stream.share import Share
from strata.ops.prompt.stream.split import Costs
from strata.ops.prompt.stream.streaming import Room, Streaming, streamed_rows
from support.grouped import layer
from support.launch import NATIVE

DEVICE = torch.device("cuda" if NATIVE else "cpu")
KINDS, ROWS = ("Q8_0", "IQ4_NL", "Q8_0"), 3
HIDDEN, INNER, EXPERTS, TOPK = 128, 64, 4, 2
ALL, SOME = Costs(link=0.0), Costs(link=0.0, begin=0.0, ask=-1.0)


class Shelf:
    """Experts of some layers in RAM, as the device has them; and what came when."""

    landing = 2

    def __init__(self, whole, missing, lent=None):
        self.whole, self._missing, self.log, self.passes = whole, missing, [], 0
        self.lent, self.wanted, self.places = lent, None, set()
        self.still = False
        self.landed = [(), ()]

    def begin(self):
        self.passes += 1

    def missing(self, layer):
        return self._missing[layer]

    def borrow(self, most):
        self.wanted = most
        return None if self.lent is None else (self.lent, range(len(self.lent))[:most])

    def layout(self, layer):
        return self.whole[layer].layout

    def ask(self, layer, experts):  # noqa: ARG002  # all are in RAM
        return False

    def there(self, layer, experts):  # noqa: ARG002
        return True

    def fetch(self, layer, experts, place):  # noqa: ARG002
        self.landed[place] = tuple(experts)

    def bring(self, layer, ring, count, place, buffers):
        experts, buffers = self.landed[place], buffers.tolist()[:count]
        self.log.append((layer, experts, tuple(buffers)))
        slots = self.whole[layer]
        self.places.update(buffers)
        for expert, buffer in zip(experts, buffers, strict=True):
            place = torch.as_strided(
                ring, (1, ring.shape[1]), ring.stride(), ring.storage_offset() + buffer * ring.stride(0)
            )
            place[0] = slots.data[int(slots.slot_of[expert])]


class Counting(InOrder):
    """Everything at once; whatever is handed over knows what it has to wait for."""

    def __init__(self):
        self.events = 0

    def computed(self):
        self.events += 1
        return self.events


@pytest.fixture(scope="module")
def model():
    """Two layers of random experts, and rows that chose."""
    rng = np.random.default_rng(4)
    moes = [Moe(layer(KINDS, HIDDEN, INNER, EXPERTS, rng, str(DEVICE), shared=False).slots) for _ in range(2)]
    x = torch.from_numpy(rng.standard_normal((ROWS, HIDDEN))).half().to(DEVICE)
    counts = torch.tensor([ROWS], dtype=torch.int32, device=DEVICE)
    picks = [np.stack([rng.permutation(EXPERTS - 1)[:TOPK] for _ in range(ROWS)]) for _ in moes]
    chosen = [torch.from_numpy(ids.astype(np.int32)).to(DEVICE) for ids in picks]
    ready = grouped.ordered(x, counts)
    expected = [
        grouped.rows_of(moe.slots, ready, grouped.planned(ids, counts, grouped.visits(ids, counts, EXPERTS)))
        for ids, moe in zip(chosen, moes, strict=True)
    ]
    return moes, x, counts, chosen, expected


def now(action):
    """Nothing is recorded."""
    action()


class Moe:
    def __init__(self, slots):
        self.slots = slots


def resident(moe, missing):
    """The layer with some experts only, in fewer slots and another order."""
    slots = moe.slots
    here = [e for e in range(slots.experts) if e not in set(missing)][::-1]
    where = torch.full((slots.experts,), -1, dtype=torch.int32)
    where[here] = torch.arange(len(here), dtype=torch.int32)
    data = slots.data[[int(slots.slot_of[e]) for e in here]] if here else slots.data[:0]
    return Moe(replace(slots, data=data.contiguous(), slot_of=where.to(DEVICE)))


def through(ring, moes, missing, here, costs, lent=0):
    """A ring in memory behind some slots that it may borrow, and one that it may not."""
    size = moes[0].slots.layout.nbytes
    memory = torch.full(((lent + 1 + ring) * size + 5,), 255, dtype=torch.uint8, device=DEVICE)
    array, memory = memory[: lent * size].view(lent, size), memory[(lent + 1) * size :]
    shelf = Shelf([moe.slots for moe in moes], missing, array if lent else None)
    passing = Ring(memory, shelf, len(moes), EXPERTS, lanes=None if NATIVE else Counting())
    return shelf, Streaming(passing, here, TOPK, costs)


@pytest.mark.parametrize(
    ("ring", "gone", "costs", "lent"),
    [(6, EXPERTS, SOME, 0), (40, 2, ALL, 0), (1, 3, ALL, 2)],
    ids=["none here", "wide", "borrowed"],
)
def test_any_ring_and_any_residents_give_the_same_bytes(model, ring, gone, costs, lent):
    moes, x, counts, chosen, expected = model
    rng = np.random.default_rng(ring)
    missing = [sorted(rng.permutation(EXPERTS)[:gone].tolist()) for _ in moes]
    here = [resident(moe, some) for moe, some in zip(moes, missing, strict=True)]
    shelf, streaming = through(ring, moes, missing, here, costs, lent)
    room = None if lent else Room(grouped.ordered_room(ROWS, HIDDEN, DEVICE), torch.empty_like(expected[0]))
    streaming.begin(ROWS)
    assert (shelf.wanted > 0) == (costs is ALL), "where each layer asks, a ring need not be wide"
    if ring == 40:  # the second layer comes while the first is computed
        assert [layer for layer, _, _ in shelf.log] == [0, 1]
    for number, (moe, ids, wanted) in enumerate(zip(here, chosen, expected, strict=True)):
        assert streaming.number(moe) == number
        assert streaming.lacks(number)
        found, beside = streamed_rows(streaming, number, moe.slots, x, counts, ids, lambda: x + 1, now, room)
        assert torch.equal(found, wanted)
        assert room is None or found is room.out
        assert torch.equal(beside, x + 1)
    came = [(layer, e) for layer, some, _ in shelf.log for e in some]
    visited = [set(ids.flatten().tolist()) for ids in chosen]
    wanted = [(layer, e) for layer, some in enumerate(missing) for e in some if costs is ALL or e in visited[layer]]
    assert came == wanted
    assert shelf.passes == 1
    assert shelf.places == ({0, 1, 3} if lent else set(range(min(ring, len(wanted)))))
    assert (streaming.passes, streaming.asked, streaming.brought) == (1, costs is SOME, len(wanted))


@pytest.mark.parametrize("costs", [ALL, SOME], ids=["all at once", "asked"])
def test_what_passes_visit_is_learned_but_not_of_no_text(model, costs):
    """Of all layers, whether their experts came unasked or not."""
    moes, _, counts, chosen, _ = model
    missing = [list(range(EXPERTS))] * 2
    here = [resident(moe, some) for moe, some in zip(moes, missing, strict=True)]
    shelf, streaming = through(4, moes, missing, here, costs)

    def read(still):
        shelf.still = still
        streaming.begin(ROWS)
        for number, ids in enumerate(chosen):
            sizes = grouped.visits(ids, counts, EXPERTS)
            streaming.ask(sizes)
            streaming.asked_for()
            streaming.count(number)
            list(streaming.groups(number, grouped.planned(ids, counts, sizes, streaming.rank(number))))

    before = streaming.share.times
    read(still=True)
    read(still=False)
    assert streaming.share.times == before
    streaming.begin(ROWS)
    visited = [len(set(ids.flatten().tolist())) for ids in chosen]
    expected = Share(TOPK, EXPERTS)
    expected.met(ROWS, sum(visited), 2 * EXPERTS)
    assert streaming.share.times == expected.times != before


@pytest.mark.parametrize("costs", [ALL, SOME], ids=["all at once", "asked"])
def test_no_group_is_launched_for_tiles_that_others_have(model, costs):
    """A launch has as many tiles as its experts, where any of them might have all pairs; and it misses none."""
    moes, *_ = model
    rows, missing = 70, [[0, 2, 3], [1]]
    here = [resident(moe, some) for moe, some in zip(moes, missing, strict=True)]
    counts = torch.tensor([rows], dtype=torch.int32, device=DEVICE)
    rng = np.random.default_rng(8)
    _, streaming = through(3, moes, missing, here, costs)
    streaming.begin(rows)
    for number, lacking in enumerate(missing):
        picks = np.stack([rng.permutation(EXPERTS - 1)[:TOPK] for _ in range(rows)]).astype(np.int32)
        chosen = torch.from_numpy(picks).to(DEVICE)
        sizes = grouped.visits(chosen, counts, EXPERTS)
        streaming.ask(sizes)
        streaming.asked_for()
        plan = grouped.planned(chosen, counts, sizes, streaming.rank(number))
        streaming.count(number)
        resides, (starts, firsts) = streaming.here(number, plan), plan.starts.tolist()
        spans = [span for _, span in streaming.groups(number, plan)]
        assert len(spans) == len(lacking) - (costs is SOME and 3 in lacking), "nobody chose the last expert"
        for span in (resides, *spans):
            assert span.most == max(1, starts[span.high] - starts[span.low])
            assert span.pairs == firsts[span.high] - firsts[span.low]
        covered = {tile for span in (resides, *spans) for tile in range(starts[span.low], starts[span.high])}
        assert covered == set(range(starts[-1]))
        assert sum(span.most for span in spans) < len(spans) * (plan.rows * TOPK // plan.tile), "what any may have"


class Launches:
    """A kernel, and how many programs of it were launched."""

    def __init__(self, kernel):
        self.kernel, self.grids = kernel, []

    def __getitem__(self, grid):
        self.grids.append(grid)
        return self.kernel[grid]


def test_programs_of_a_streamed_layer_are_as_many_as_have_something_to_do(model, monkeypatch):
    """Of products and of what puts their rows in order; bytes are those of the layer that has all experts."""
    moes, *_ = model
    rows, rng = 70, np.random.default_rng(9)
    x = torch.from_numpy(rng.standard_normal((rows, HIDDEN))).half().to(DEVICE)
    picks = np.stack([rng.permutation(EXPERTS)[:TOPK] for _ in range(rows)]).astype(np.int32)
    chosen, counts = torch.from_numpy(picks).to(DEVICE), torch.tensor([rows], dtype=torch.int32, device=DEVICE)
    sizes = grouped.visits(chosen, counts, EXPERTS)
    plan, ready = grouped.planned(chosen, counts, sizes), grouped.ordered(x, counts)
    expected = grouped.rows_of(moes[0].slots, ready, plan)
    missing = [list(range(EXPERTS)), []]
    _, streaming = through(
        3, moes, missing, [resident(moe, gone) for moe, gone in zip(moes, missing, strict=True)], ALL
    )
    streaming.begin(rows)
    spies = [Launches(kernel) for kernel in (grouped.experts.gate_up, grouped.experts.down, grouped.order)]
    for name, spy in zip(("gate_up", "down"), spies, strict=False):
        monkeypatch.setattr(grouped.experts, name, spy)
    monkeypatch.setattr(grouped, "order", spies[2])
    found, _ = streamed_rows(streaming, 0, streaming._kept[0], x, counts, chosen, lambda: x, now)
    assert torch.equal(found, expected)
    each = sizes.tolist()  # a group is one expert
    tiles = [-(-size // plan.tile) for size in each]
    gate_up, down, order = ([grid[at] for grid in spy.grids] for at, spy in zip((1, 1, 0), spies, strict=True))
    assert gate_up == down == tiles
    assert order == [-(-rows // 16), *(-(-size // 16) for size in each)]


def test_a_layer_that_has_all_asks_for_nothing(model):
    moes, *_ = model
    shelf, streaming = through(1, moes, [(), ()], moes, SOME)
    streaming.begin(ROWS)
    assert not streaming.lacks(0)
    assert shelf.log == []


def test_slots_may_lie_apart_and_layers_differ_in_size():
    """A ring's buffers are as large as the largest layer's slots."""
    rng = np.random.default_rng(6)
    moes = [
        Moe(layer(kinds, HIDDEN, INNER, 2, rng, str(DEVICE), shared=False).slots) for kinds in (KINDS, ("IQ4_NL",) * 3)
    ]
    sizes = [moe.slots.layout.nbytes for moe in moes]
    assert sizes[0] != sizes[1]
    shelf = Shelf([moe.slots for moe in moes], [[0, 1], [0, 1]])
    memory = torch.full((2 * max(sizes),), 255, dtype=torch.uint8, device=DEVICE)
    ring = Ring(memory, shelf, 2, 2, lanes=None if NATIVE else Counting())
    assert ring.buffers == 2
    ring.begin([[0, 1], [0, 1]])
    for number, moe in enumerate(moes):
        for slots, experts in ring.slots(number):
            for e in experts:
                own = moe.slots.data[int(moe.slots.slot_of[e])]
                assert torch.equal(slots.data[int(slots.slot_of[e])], own)
