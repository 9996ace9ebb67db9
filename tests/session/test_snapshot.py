"""Parts of a state: whatever the cuts, put together they are the state; what is left out or does not fit is refused."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.model.mtp import MtpOptions
from strata.model.snapshot import Checkpoint, SnapshotError, Span, assemble, checkpoint, cut
from support.network import network, prompt
from support.states import differing

RATIO = 4
LENGTH = 203  # neither a multiple of 64 nor of the ratio; past the indexer's budget of 16


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def states():
    """States at many boundaries of one text, each committed token by token from the one before."""
    with torch.inference_mode():
        net, ids = network("base", drafts=True), prompt("base", LENGTH)
        state, found = net.new_state(), {}
        for token in ids:
            net.commit(state, net.window([(state, [token])])[0], 1)
            net.settle(state)
            found[state.length] = state.clone()
        return found


def assembled(spans, end):
    return assemble(network("base", drafts=True).config, spans, end, drafts=True)


@given(st.lists(st.integers(1, LENGTH), min_size=1, unique=True).map(sorted))
@settings(max_examples=30, deadline=None)
def test_a_state_put_together_equals_the_state(states, cuts) -> None:
    end = cuts[-1]
    # Each piece comes from the state of its own end, as when a conversation grows turn by turn.
    spans = [cut(states[b], a, b, RATIO) for a, b in zip([0, *cuts], cuts, strict=False)]
    assert differing(assembled(spans, checkpoint(states[end])), states[end]) == []


@given(st.lists(st.integers(0, LENGTH), min_size=2, unique=True).map(sorted), st.data())
@settings(max_examples=30, deadline=None)
def test_a_part_of_a_span_is_the_span_of_that_part(states, cuts, data) -> None:
    a, b = cuts[0], cuts[-1]
    c = data.draw(st.integers(a, b - 1))
    d = data.draw(st.integers(c + 1, b))
    whole, part = cut(states[LENGTH], a, b, RATIO), cut(states[LENGTH], c, d, RATIO)
    found = whole.part(c, d)
    assert (found.start, found.end) == (c, d)
    assert found.tables.keys() == part.tables.keys()
    assert all(torch.equal(found.tables[name], part.tables[name]) for name in part.tables)


def test_what_goes_on_behind_a_restored_state_is_what_went_on(states) -> None:
    net, ids = network("base", drafts=True), prompt("base", LENGTH)
    for n in (1, 4, 63, 64, 66, 130):
        state = assembled([cut(states[n], 0, n, RATIO)], checkpoint(states[n]))
        for token in ids[n : n + 9]:
            net.commit(state, net.window([(state, [token])])[0], 1)
            net.settle(state)
        assert differing(state, states[n + 9]) == []


def test_parts_share_nothing_with_the_state(states) -> None:
    state = states[66].clone()
    spans, end = [cut(state, 0, 66, RATIO)], checkpoint(state)
    for _, tensor in state.tensors():
        tensor.zero_()
    first = assembled(spans, end)
    for _, tensor in first.tensors():
        tensor.zero_()
    assert differing(assembled(spans, end), states[66]) == []


def test_each_kind_of_state_that_is_left_out_is_noticed(states) -> None:  # case K01
    n = 130
    span, end = cut(states[n], 0, n, RATIO), checkpoint(states[n])
    names = {name for name, _ in states[n].tensors()}
    names -= {"mtp.pending", "mtp.pending_ids"}  # empty in a settled state
    assert span.tables.keys() | end.tensors.keys() == names
    for name in sorted(names):
        tables = {key: value for key, value in span.tables.items() if key != name}
        tensors = {key: value for key, value in end.tensors.items() if key != name}
        with pytest.raises(SnapshotError, match=name):
            assembled([replace(span, tables=tables)], replace(end, tensors=tensors))
    # And that each of them matters: with zeros in its place something else is another.
    net = network("base", drafts=True, options=MtpOptions(sparse=True))  # else the head's blocks are for nothing
    following = prompt("base", LENGTH)[n : n + 6]
    expected = continue_with(net, states[n].clone(), following)
    for name in sorted(names - {"counters"}):
        tables = {key: torch.zeros_like(t) if key == name else t for key, t in span.tables.items()}
        tensors = {key: torch.zeros_like(t) if key == name else t for key, t in end.tensors.items()}
        found = continue_with(net, assembled([replace(span, tables=tables)], replace(end, tensors=tensors)), following)
        assert any(not torch.equal(found[key], expected[key]) for key in expected if key != name), name


def continue_with(net, state, ids):
    """What the trunk and the draft head predict while `ids` are committed, and the state after that."""
    found = {}
    for at, token in enumerate(ids):
        for step, logits in enumerate(net.draft(state, token, 1)):
            found[f"draft {at} {step}"] = logits
        (window,) = net.window([(state, [token])])
        found[f"trunk {at}"] = net.logits(window.residual)
        net.commit(state, window, 1)
    net.settle(state)
    return found | {name: tensor.clone() for name, tensor in state.tensors()}


def test_halves_of_different_boundaries_are_refused(states) -> None:  # case K05
    spans, end = [cut(states[64], 0, 64, RATIO)], checkpoint(states[60])
    with pytest.raises(SnapshotError, match="rows end at token 64, the recurrent states at 60"):
        assembled(spans, end)
    with pytest.raises(SnapshotError, match="the counters"):
        assembled(spans, replace(end, length=64))
    first, last = cut(states[64], 0, 20, RATIO), cut(states[64], 24, 64, RATIO)
    with pytest.raises(SnapshotError, match="from token 20 on are missing"):
        assembled([first, last], checkpoint(states[64]))
    with pytest.raises(SnapshotError, match="expected"):
        assembled([first, replace(last, start=20)], checkpoint(states[64]))
    with pytest.raises(SnapshotError, match="expected"):
        assembled([replace(cut(states[64], 0, 64, RATIO), ratio=8)], checkpoint(states[64]))


def test_parts_of_another_model_are_refused(states) -> None:
    other = network("other", drafts=True)
    with pytest.raises(SnapshotError, match=r"expected|missing or unknown"):
        assemble(other.config, [cut(states[64], 0, 64, RATIO)], checkpoint(states[64]), drafts=True)
    with pytest.raises(SnapshotError, match=r"mtp"):
        assemble(network("base").config, [cut(states[64], 0, 64, RATIO)], checkpoint(states[64]), drafts=False)


def test_numbers_that_are_not_finite_are_not_kept(states) -> None:  # case P02
    state = states[66].clone()
    state.layers[1].s[0, 0, 0] = float("nan")
    with pytest.raises(SnapshotError, match=r"layer\.1\.s of a state of 66 tokens is not finite"):
        checkpoint(state)
    state = states[66].clone()
    state.layers[7].k.upto(66)[50] = float("inf")
    cut(state, 0, 50, RATIO)
    with pytest.raises(SnapshotError, match=r"layer\.7\.k of a state of 66 tokens is not finite"):
        cut(state, 40, 66, RATIO)


def test_a_state_that_is_not_settled_is_refused(states) -> None:
    net, ids = network("base", drafts=True), prompt("base", LENGTH)
    state = states[66].clone()
    net.commit(state, net.window([(state, ids[66:68])])[0], 2)
    with pytest.raises(SnapshotError, match=r"mtp.* holds 65 rows, but 67 belong to 68 tokens"):
        cut(state, 0, 68, RATIO)
    with pytest.raises(SnapshotError, match=r"mtp\.pending.* of a state of 68 tokens waits"):
        checkpoint(state)
    net.settle(state)
    assert differing(assembled([cut(state, 0, 68, RATIO)], checkpoint(state)), states[68]) == []
    state = states[66].clone()
    state.mtp.positions.truncate(60)
    with pytest.raises(SnapshotError, match=r"mtp\.positions holds 60 rows, but 65 belong to 66 tokens"):
        cut(state, 0, 66, RATIO)


def test_tokens_outside_of_a_span_are_refused(states) -> None:
    span = cut(states[64], 10, 20, RATIO)
    for start, end in ((9, 12), (15, 21), (12, 12), (14, 12)):
        with pytest.raises(SnapshotError, match="not within"):
            span.part(start, end)
    for start, end in ((0, 65), (5, 5), (-1, 5)):
        with pytest.raises(SnapshotError, match="not within"):
            cut(states[64], start, end, RATIO)


def test_sizes_are_those_of_the_numbers_kept(states) -> None:
    span, end = cut(states[64], 0, 64, RATIO), checkpoint(states[64])
    assert span.bytes + end.bytes == sum(t.numel() * t.element_size() for _, t in states[64].tensors())
    assert isinstance(span, Span)
    assert isinstance(end, Checkpoint)
