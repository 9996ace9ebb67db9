"""Windows: a row never sees its company, and a commit of n rows leaves what n single steps leave, byte for byte."""

import itertools

import pytest
import torch

from strata.errors import RequestError
from support.network import network, prompt
from support.states import differing
from support.tiny import SETTINGS


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def same_bytes(a, b, net=None):
    """Names of the parts that differ; with a network, of settled copies."""
    if net:
        a, b = a.clone(), b.clone()
        net.settle(a)
        net.settle(b)
    return differing(a, b)


def begin(net, ids):
    state = net.new_state()
    net.read(state, ids)
    return state


def step(net, state, token):
    window = net.window([(state, [token])])[0]
    net.commit(state, window, 1)
    return net.logits(window.residual)[0]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("start", [1, 62, 97], ids="start{}".format)
def test_any_commit_equals_that_many_single_steps(name, start):
    net, ids = network(name), prompt(name, 120)
    base = begin(net, ids[:start])
    plain, logits, states = base.clone(), [], [base.clone()]
    for token in ids[start : start + 8]:
        logits.append(step(net, plain, token))
        states.append(plain.clone())
    for rows in range(1, 9):
        for n in range(rows + 1):
            state = base.clone()
            window = net.window([(state, ids[start : start + rows])])[0]
            assert torch.equal(net.logits(window.residual), torch.stack(logits[:rows]))
            assert same_bytes(state, base) == [], "a window must not change what is committed"
            net.commit(state, window, n)
            assert same_bytes(state, states[n]) == []


def test_refused_rows_leave_no_trace_in_what_follows():
    net, ids = network("base"), prompt("base", 140)
    plain = begin(net, ids[:70])
    expected = [step(net, plain, token) for token in ids[70:110]]
    state, at, lengths = begin(net, ids[:70]), 70, itertools.cycle([(8, 3), (5, 0), (8, 8), (2, 1), (1, 1)])
    got = []
    while at < 110:
        rows, right = next(lengths)
        right = min(right, 110 - at)
        wrong = [(t + 1) % 512 for t in ids[at + right : at + rows]]
        window = net.window([(state, ids[at : at + right] + wrong)])[0]
        got.extend(net.logits(window.residual)[:right])
        net.commit(state, window, right)
        at += right
    assert torch.equal(torch.stack(got), torch.stack(expected))
    assert same_bytes(state, plain) == []


@pytest.mark.parametrize("name", ["base", "other"])
def test_rollback_equals_a_fresh_prefill_of_the_accepted_prefix(name):
    net, ids = network(name), prompt(name, 110)
    for n in range(9):
        state = begin(net, ids[:90])
        net.commit(state, net.window([(state, ids[90:98])])[0], n)
        assert same_bytes(state, begin(net, ids[: 90 + n])) == []


def test_a_draft_head_follows_every_commit():
    net, ids = network("base", drafts=True), prompt("base", 100)
    base = begin(net, ids[:60])
    plain = base.clone()
    states = [plain.clone()]
    for token in ids[60:68]:
        step(net, plain, token)
        states.append(plain.clone())
    for n in range(9):
        state = base.clone()
        window = net.window([(state, ids[60:68])])[0]
        net.draft(state, ids[60], 4)
        net.commit(state, window, n)
        assert same_bytes(state, states[n], net) == []


def test_clones_share_nothing():
    net, ids = network("base", drafts=True), prompt("base", 100)
    state = begin(net, ids[:50])
    copy = state.clone()
    net.read(state, ids[50:90])
    assert same_bytes(copy, begin(net, ids[:50])) == []
    net.read(copy, ids[50:90])
    assert same_bytes(copy, state) == []


def test_requests_that_make_no_sense_are_refused():
    net = network("base")
    state = net.new_state()
    with pytest.raises(RequestError, match="no tokens"):
        net.read(state, [])
    with pytest.raises(RequestError, match="token id 512 is outside the vocabulary of 512"):
        net.read(state, [3, 512])
    with pytest.raises(RequestError, match="at most 8 rows, not 9"):
        net.window([(state, [1] * 9)])
    with pytest.raises(RequestError, match="cannot commit 3 of 2"):
        net.commit(state, net.window([(state, [1, 2])])[0], 3)
    with pytest.raises(RequestError, match="without drafts"):
        net.draft(state, 1, 2)
    assert state.length == 0
