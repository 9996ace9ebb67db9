"""Short prompts whose launches are recorded, parted by what the host does for experts and n-grams that it has."""

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.prompt.records import Records
from strata.ops.prompt.stream.split import Costs
from strata.ops.tiers.prompts import streaming
from support.launch import NATIVE
from support.recorded import recorded
from support.slim import DEVICE, network, slim, state_of

pytestmark = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.usefixtures("unchecked")]

READ = [(0, (5, 9, 11)), (0, (7, 5)), (1, (3,)), (1, (9, 5, 5, 12)), (0, (11, 3))]
"""Conversations and what they read, one after the other: of one shape of records, and never as many tokens."""

ASKED = Costs(link=0.0, begin=0.0, ask=-1.0)
"""A pass asks which experts are visited, and so borrows no slots: where all have one, nobody is missing."""

CASES = [(slots, table, costs) for slots in (None, 5, 16) for table in ("", "ram") for costs in (None, ASKED)]
"""How many experts of both layers have slots; who reads n-grams, the host or the device; and how experts come."""

if not NATIVE:  # which takes long
    READ, CASES = READ[:4], [(5, "ram", None), (16, "", ASKED)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return slim(tmp_path_factory.mktemp("slim"), (1, 3))


def _texts(
    model, slots, *, patch=None, table="", costs=None,
    before=lambda net, tier, turn: None,  # noqa: ARG005
):  # fmt: skip
    """Residuals of all that is read, what two conversations keep of it, and what happened meanwhile."""
    with network(model, slots, graphs=patch is not None, table=table) as (net, tier, coming):
        if patch is not None and not NATIVE:
            recorded(net.ops, patch)
        if coming is not None and costs is not None:
            coming._costs = costs
        states, found = [net.new_state(), net.new_state()], []
        for turn, (whose, ids) in enumerate(READ):
            before(net, tier, turn)
            found.append(net.read(states[whose], list(ids)).clone())
        return found, [state_of(state) for state in states], net.ops._prompt, coming


@pytest.fixture(scope="module")
def expected(model):
    found, kept, prompt, _ = _texts(model, None)
    assert not prompt._kept
    return found, kept


def _same(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    assert all(torch.equal(a, b) for x, y in zip(one[1], other[1], strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "table", "costs"), CASES)
def test_records_give_the_bytes_of_launches_one_by_one(model, expected, monkeypatch, slots, table, costs):
    """Nothing, some or all of the experts missing; none of them stays where it was."""

    def moved(_, tier, turn):
        """Others have slots, or nobody has for a while: who lacked nothing when it was recorded does later."""
        if tier is not None:
            tier.cache.resize(0, (slots, slots, 1, 3, slots)[turn])
            tier.fill()

    found, kept, prompt, coming = _texts(model, slots, patch=monkeypatch, table=table, costs=costs, before=moved)
    assert list(prompt._records.done) == [(16, 0)]
    assert slots is None or coming.brought > 0
    assert slots is None or coming.asked == (len(READ) if costs is ASKED else 0)
    _same((found, kept), expected)
    recording, _ = prompt._records.done[16, 0]
    if NATIVE:
        between = (2 if table else 0) + (0 if slots is None else 4)
        assert len(recording._graphs) == 1 + between
        assert len(recording._steps) == 1 + 2 * between


@pytest.mark.slow
def test_records_of_another_ring_are_not_run(model, expected, monkeypatch):
    """Experts come through a smaller one from the third pass on."""

    def other(net, tier, turn):
        if turn == 2:
            assert net.ops._prompt._records.done
            moes = [layer.moe for layer in net.weights.layers]
            net.ops.lacks(streaming(tier, moes, net.config.moe.topk, DEVICE, buffers=2))

    found, kept, prompt, coming = _texts(model, 5, patch=monkeypatch, before=other)
    _same((found, kept), expected)
    assert coming.passes == 2
    assert prompt.streaming.passes == len(READ) - 2
    assert list(prompt._records.done) == [(16, 0)]


@pytest.mark.slow
def test_where_memory_is_full_nothing_more_is_recorded(model, expected, monkeypatch, caplog):
    """It was all the same to who needs no record; whoever looks for a reason finds one, once."""
    before = Records._made

    def refuse(records, body):
        def torn():
            body()
            raise torch.OutOfMemoryError("no 5 bytes are free\nand much more")

        return before(records, torn)

    monkeypatch.setattr(Records, "_made", refuse)
    found, kept, prompt, _ = _texts(model, 5, patch=monkeypatch)
    _same((found, kept), expected)
    assert not prompt._records.done
    (said,) = [record.getMessage() for record in caplog.records if "no memory to record" in record.getMessage()]
    assert "behind 0:" in said
    assert said.endswith("(no 5 bytes are free)")
