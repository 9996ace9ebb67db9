"""Windows launched before the host has read the token they are for: the same numbers, whatever happens in between.

What a window computes is a stand-in here, made of every number that it was launched with; tests/gpu has the kernels.
"""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine import Drafting, Generation, Request
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.model.decision import Greedy
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.qsa.pages import RING
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")
NOTHING = np.empty(0, np.int64)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


class Stub(GpuOps):
    """Computes sums: of the rows before as the recurrent state has them, and of what the row was launched with."""

    launches = 0
    broken = False
    residual = torch.zeros(1)

    def _whole(self, batch, body, head):  # noqa: ARG002
        self.launches += 1
        self.residual.fill_(torch.nan)  # windows share their memory, so what others left is gone
        for other in self._windows.values():
            if other.logits is not None and other is not batch:
                other.logits.fill_(torch.nan)
        pool, c = self._pool, self._c
        logits = torch.empty((batch.rows, c.V), device=DEVICE)
        for at, (place, spare, begin, end) in enumerate(
            zip(batch.places, batch.spares, batch.first, batch.first[1:], strict=False)
        ):
            state = pool.states[int(place)].clone()
            for row in range(int(begin), int(end)):
                cell = int(batch.seen[row]) - 1
                known = batch.ids[row], batch.positions[row], batch.seen[row], batch.starts[row]
                state = state * 0.5 + sum((i + 1) * int(x) for i, x in enumerate(known))
                logits[row] = torch.sin(state.flatten()[0] * 0.37 + torch.arange(c.V, device=DEVICE))
                slot, ratio = int(batch.slots[at]), c.qsa.ratio
                ring, page = pool.raw[0, slot], int(pool.table[slot, cell // 64])
                pool.keys[0][page, cell % 64] = ring[cell % RING] = state.flatten()[0]
                if (cell + 1) % ratio == 0:
                    first = cell % RING + 1 - ratio
                    pool.blocks[0][page, cell % 64 // ratio] = ring[first : first + ratio].sum(0)
            pool.states[int(spare)] = state
        for inputs in (batch.u, batch.mixed, batch.steps, batch.decay):  # of what a commit moves
            inputs.zero_()
        batch.logits = logits.fill_(torch.nan) if self.broken else logits
        self.residual = torch.zeros((batch.rows, c.S * c.H), device=DEVICE)
        return self.residual


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="yarn"))
    config = replace(load_config(directory.metadata), mtp=False, ple=None)
    return config, load_weights(directory, config)


@pytest.fixture
def fresh(loaded):
    """A network that has computed nothing yet."""
    config, weights = loaded

    def made(slots=10, *, ahead=False):
        pool = Pool(config, DEVICE, slots=slots, cells=1024, ahead=ahead)
        return Network(config, weights, Stub(config, pool, DEVICE, graphs=False))

    return made


class Text:
    """An answer, window by window."""

    def __init__(self, net, token, *, goes_on=True):
        self.net, self.state, self.token, self.goes_on = net, net.new_state(), token, goes_on
        self.decisions = []

    def window(self, guesses=(), stops=()):
        (done,) = self.net.window([(self.state, [self.token, *guesses])])
        (decision,) = self.net.decide([(self.state, done)], [Greedy(NOTHING, stops, 1, self.goes_on)])
        self.decisions.append(decision)
        if decision.ids:
            self.token = decision.ids[-1]
        return done, decision

    def left(self):
        return self.decisions, self.token, self.state.length, [(name, x.clone()) for name, x in self.state.tensors()]


def same(one, other):
    assert one[:3] == other[:3]
    for (name, x), (_, y) in zip(one[3], other[3], strict=True):
        assert torch.equal(x, y), name


def test_a_text_by_itself(fresh):
    found = []
    for goes_on in (False, True):
        net = fresh()
        text, free = Text(net, 7), net.ops._pool.free_places
        for i in range(70):  # over the borders of pages
            text.goes_on = goes_on and i < 69
            text.window()
            assert net.ops.launches == min(70, i + 1 + goes_on)
        assert net.ops._pool.free_places == free - 1
        found.append(text.left())
    assert len({d.ids for d in found[0][0]}) > 20
    same(*found)


def test_a_single_conversation_needs_a_third_place(fresh):
    found = []
    for ahead in (False, True):
        net = fresh(1, ahead=ahead)
        assert len(net.ops._pool.states) == 2 + ahead
        text = Text(net, 7)
        for i in range(70):
            text.goes_on = i < 69
            text.window()
            assert net.ops.launches == min(70, i + 1 + ahead)
        assert net.ops._pool.free_places == 1 + ahead
        found.append(text.left())
    same(*found)


@pytest.mark.parametrize("ahead", [False, True])
def test_whatever_a_single_conversation_does(fresh, ahead):
    """Windows by itself, with guesses, committed by hand, left alone; prompts; its end, and another in its place."""
    rng, count = np.random.default_rng(6), 0
    for _ in range(5):
        steps, found = rng.integers(0, 6, 10).tolist(), []
        for goes_on in (False, True):
            net = fresh(1, ahead=ahead)
            text, left = Text(net, 7, goes_on=goes_on), []
            for step in (0, 0, *steps):
                match step:
                    case 0 | 1:
                        text.window()
                    case 2:
                        text.window([3])
                    case 3:
                        net.commit(text.state, net.window([(text.state, [text.token])])[0], 1)
                    case 4:
                        net.window([(text.state, [5])])  # abandoned
                    case 5:
                        left.append(text.left())
                        del text
                        text = Text(net, 9, goes_on=goes_on)
            found.append([*left, text.left()])
            count += net.ops.launches * (1 if goes_on else -1)
        for one, two in zip(*found, strict=True):
            same(one, two)
    assert (count > 0) == ahead


def test_windows_share_what_they_work_in(fresh, monkeypatch):
    """And what they leave for their commit: as much as the longest, however many shapes there are."""

    class Record:
        memory = None

        def __init__(self, beside=None):
            self.beside = beside

        @contextmanager
        def capture(self):
            yield

        def replay(self):
            pass

    net = fresh()
    net.ops._graphs = True
    monkeypatch.setattr("strata.ops.gpu.ops.Recording", Record)
    text, other = Text(net, 7), net.new_state()
    for ids in ([[1]], [[1, 2, 3]], [[1], [2]], [[1] * 8]):
        for _ in range(2):
            net.window(list(zip((text.state, other), ids, strict=False)))
    first, *others = (record for record, _ in net.ops.recorded.values())
    assert first.beside is None
    assert [one.beside for one in others] == [first] * 3
    batches = net.ops._windows
    assert len({batch.u.untyped_storage().data_ptr() for batch in batches.values()}) == 1
    kept = [batches[8,].u, batches[8,].mixed, batches[8,].steps, batches[8,].decay]
    assert batches[8,].u.untyped_storage().nbytes() == sum(x.nbytes for x in kept)
    for batch in batches.values():
        assert all(x.is_contiguous() and x.shape[1] == batch.rows for x in (batch.u, batch.mixed, batch.decay))


def events(net, text, other, steps):
    """What may come between two windows of a text, drawn by numbers."""
    for step in steps:
        match step:
            case 0 | 1:
                text.window()
            case 2:
                other.window()
            case 3:
                text.window([3])
            case 4:
                text.window([int(net.predictions([net.window([(text.state, [text.token])])[0]]).argmax())])
            case 5:
                (one, two) = net.window([(text.state, [text.token]), (other.state, [other.token])])
                rules = [Greedy(NOTHING, (), 1, goes_on=True)] * 2
                a, b = net.decide([(text.state, one), (other.state, two)], rules)
                text.token, other.token = a.ids[-1], b.ids[-1]
            case 6:
                net.commit(text.state, net.window([(text.state, [text.token])])[0], 1)
            case 7:
                text.state = text.state.clone()
            case 8:
                net.window([(other.state, [5])])  # abandoned
            case 9:
                for _ in range(9):  # every place is wanted
                    net.window([(net.new_state(), [1, 2, 3])])


def test_whatever_comes_in_between(fresh):
    rng = np.random.default_rng(5)
    for _ in range(5):
        steps, found = rng.integers(0, 10, 12).tolist(), []
        for goes_on in (False, True):
            net = fresh()
            text, other = Text(net, 7, goes_on=goes_on), Text(net, 7, goes_on=goes_on)
            text.window()
            other.window()
            events(net, text, other, steps)
            found.append((text.left(), other.left()))
        for one, two in zip(*found, strict=True):
            same(one, two)


def test_a_twin_computes_its_own(fresh):
    """Another conversation that has said the very same is not served what was launched for this one."""
    net = fresh()
    text, twin, plain = (Text(net, 7, goes_on=goes_on) for goes_on in (True, False, False))
    for one in (twin, text, twin, text, text, twin, text, twin, plain, plain, plain, plain):
        one.window()
    assert text.decisions == plain.decisions
    same(text.left(), plain.left())
    same(twin.left(), plain.left())


def test_a_row_without_numbers(fresh):
    """The host reads the predictions of the row, not those of the window that was launched behind it."""
    net = fresh()
    text = Text(net, 7, goes_on=False)
    text.window()
    net.ops.broken, text.goes_on, before = True, True, net.ops.launches
    done, decision = text.window()
    assert (decision.ids, decision.broken) == ((), 0)
    assert net.ops.launches == before + 3
    assert not np.isfinite(net.predictions([done])).any()
    assert text.state.length == 1


def test_there_is_no_room_behind_the_last_token(fresh, loaded):
    net = fresh()
    text = Text(net, 7)
    text.window()
    text.state.length = text.state.next_position = loaded[0].context - 1
    net.ops._pool.reserve(text.state, loaded[0].context)
    before = net.ops.launches
    text.window()
    assert net.ops.launches == before + 1


@pytest.mark.parametrize(("drafting", "most", "goes_on"), [(0, 2, True), (0, 1, False), (1, 9, False)])
def test_the_engine_says_which_texts_go_on_by_themselves(fresh, drafting, most, goes_on):
    net = fresh()
    request = Request("", (5,), max_tokens=most, drafting=Drafting(drafting))
    assert Generation(net, net.new_state(), request).greedy.goes_on == goes_on
