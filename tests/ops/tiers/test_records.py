"""Short prompts whose launches are recorded, parted by what the host does for experts and n-grams that it has."""

from contextlib import contextmanager

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.prompt import ops as prompts
from support.launch import NATIVE
from support.slim import network, slim, state_of

pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]

READ = [(0, (5, 9, 11)), (0, (7, 5)), (1, (3,)), (1, (9, 5, 5, 12)), (0, (11, 3))]
"""Conversations and what they read, one after the other: of one shape of records, and never as many tokens."""

CASES = [(slots, table) for slots in (None, 5, 16) for table in ("", "ram")]
"""How many experts of both layers have slots, and who reads n-grams: the host, unless it is the device."""

if not NATIVE:  # which takes long
    READ, CASES = READ[:3], [(5, "ram"), (16, "")]


class Once:
    """A record of no device: what is launched runs while it is recorded, and that is all."""

    def __init__(self, beside=None):
        self.parts = 1 if beside is None else beside.parts + 1

    @contextmanager
    def capture(self):
        yield

    def host(self, action):
        action()
        self.parts += 1

    def replay(self):
        pass


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return slim(tmp_path_factory.mktemp("slim"), (1, 3))


def _texts(model, slots, *, graphs=True, table="", resident=lambda tier, turn: None):  # noqa: ARG005
    """Residuals of all that is read, what two conversations keep of it, and what happened meanwhile."""
    with network(model, slots, graphs=graphs, table=table) as (net, tier, coming):
        prompt = net.ops._prompt
        if graphs and not NATIVE:
            prompt._graphs = True
        states, found = [net.new_state(), net.new_state()], []
        for turn, (whose, ids) in enumerate(READ):
            resident(tier, turn)
            if graphs and not NATIVE:  # every one is recorded: nothing else would run
                prompt._met.add((16, 0))
                prompt._recorded.clear()
            found.append(net.read(states[whose], list(ids)).clone())
        return found, [state_of(state) for state in states], prompt, coming


@pytest.fixture(scope="module")
def expected(model):
    found, kept, prompt, _ = _texts(model, None, graphs=False)
    assert not prompt._kept
    return found, kept


def _same(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    assert all(torch.equal(a, b) for x, y in zip(one[1], other[1], strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "table"), CASES)
def test_records_give_the_bytes_of_launches_one_by_one(model, expected, monkeypatch, slots, table):
    """Nothing, some or all of the experts missing; none of them stays where it was."""
    if not NATIVE:
        monkeypatch.setattr(prompts, "Recording", Once)

    def moved(tier, turn):
        """Others have slots, or nobody has for a while: who lacked nothing when it was recorded does later."""
        if tier is not None:
            tier.cache.resize(0, (slots, 1, slots, 3, slots)[turn])
            tier.fill()

    found, kept, prompt, coming = _texts(model, slots, table=table, resident=moved)
    assert list(prompt._recorded) == [(16, 0)]
    assert slots is None or coming.brought > 0
    _same((found, kept), expected)
    if NATIVE:
        recording, _ = prompt._recorded[16, 0]
        between = (2 if table else 0) + (0 if slots is None else 4)
        assert len(recording._graphs) == 1 + between
        assert len(recording._steps) == 1 + 2 * between
