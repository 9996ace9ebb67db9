"""Rows of several conversations in one window have the bytes each has alone (case J02).

On the CPU a prompt pass runs the delta rule as windows do, so a text leaves one state however it came in.
"""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from support.network import network, prompt
from support.states import differing
from support.tiny import SETTINGS

LENGTHS = (1, 3, 5, 17, 64, 70, 101, 200)
"""Tokens each of eight conversations starts with: within and beyond the indexer's budget of 16 or 24."""


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@functools.cache
def conversation(name, number):
    """One of eight: its state, and the eight ids that follow."""
    with torch.inference_mode():
        net = network(name, drafts=True)
        ids = prompt(name, LENGTHS[number] + 8, seed=number)
        state = net.new_state()
        net.read(state, ids[: LENGTHS[number]])
    return state, ids[LENGTHS[number] :]


@functools.cache
def alone(name, number, rows, count):
    """Logits of so many rows of one conversation, and its settled state after committing `count`."""
    with torch.inference_mode():
        net = network(name, drafts=True)
        state, ids = conversation(name, number)
        state = state.clone()
        window = net.window([(state, ids[:rows])])[0]
        net.commit(state, window, count)
        net.settle(state)
        return net.logits(window.residual), state


@st.composite
def mixtures(draw):
    """Conversations in any order with rows each, at most eight in all, and how many of them are committed."""
    numbers = draw(st.permutations(range(8)))[: draw(st.integers(1, 8))]
    left, batch = 8 - len(numbers), []
    for number in numbers:
        extra = draw(st.integers(0, left))
        left -= extra
        batch.append((number, 1 + extra, draw(st.integers(0, 1 + extra))))
    return batch


@pytest.mark.parametrize("name", ["base", "other"])
@settings(deadline=None, max_examples=40)
@given(batch=mixtures())
def test_any_mixture_gives_each_conversation_its_own_bytes(name, batch):
    with torch.inference_mode():
        net = network(name, drafts=True)
        states = [conversation(name, number)[0].clone() for number, _, _ in batch]
        passes = net.window(
            [(s, conversation(name, number)[1][:rows]) for s, (number, rows, _) in zip(states, batch, strict=True)]
        )
        together = net.logits(torch.cat([done.residual for done in passes]))
        first = 0
        for state, done, (number, rows, count) in zip(states, passes, batch, strict=True):
            assert differing(state, conversation(name, number)[0]) == [], "a window commits nothing"
            net.commit(state, done, count)
            net.settle(state)
            logits, expected = alone(name, number, rows, count)
            assert torch.equal(together[first : first + rows], logits)
            assert differing(state, expected) == []
            first += rows


def test_conversations_that_join_and_leave_half_way():
    """Case J02: lengths 1, 3, 64, 200, one row each and in changing order, over 24 windows."""
    name, net = "base", network("base")
    texts = [prompt(name, length + 24, seed=length) for length in (1, 3, 64, 200)]
    expected = []
    for ids in texts:
        state = net.new_state()
        net.read(state, ids[:-24])
        logits = []
        for token in ids[-24:]:
            done = net.window([(state, [token])])[0]
            net.commit(state, done, 1)
            logits.append(net.logits(done.residual)[0])
        expected.append((torch.stack(logits), state))
    states = [net.new_state() for _ in texts]
    for state, ids in zip(states, texts, strict=True):
        net.read(state, ids[:-24])
    joined, at, got = (0, 5, 2, 9), [0] * 4, [[] for _ in texts]
    for tick in range(40):
        here = [i for i in range(4) if joined[i] <= tick and at[i] < 24]
        here = here[tick % max(1, len(here)) :] + here[: tick % max(1, len(here))]
        if not here:
            continue
        passes = net.window([(states[i], [texts[i][len(texts[i]) - 24 + at[i]]]) for i in here])
        for i, done in zip(here, passes, strict=True):
            net.commit(states[i], done, 1)
            got[i].append(net.logits(done.residual)[0])
            at[i] += 1
    for i in range(4):
        assert torch.equal(torch.stack(got[i]), expected[i][0])
        assert differing(states[i], expected[i][1]) == []


@pytest.mark.parametrize("name", SETTINGS)
@settings(deadline=None, max_examples=10)
@given(cuts=st.sets(st.integers(1, 99), max_size=5), windows=st.lists(st.integers(1, 8), min_size=30, max_size=30))
def test_a_text_read_and_the_same_text_written_leave_the_same_bytes(name, cuts, windows):
    """Cases O06, O07: 100 tokens as a prompt with any cuts, and behind one token in windows of any size."""
    with torch.inference_mode():
        net, ids = network(name, drafts=name != "yarn"), prompt(name, 100)
        read, written = net.new_state(), net.new_state()
        residual = [net.read(read, ids[a:b]) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 100], strict=True)]
        rows, at = [net.read(written, ids[:1])], 1
        for size in windows:
            piece = ids[at : at + size]
            if not piece:
                break
            done = net.window([(written, piece)])[0]
            net.commit(written, done, len(piece))
            rows.append(done.residual)
            at += len(piece)
        read_on = 100 - at
        if read_on:
            rows.append(net.read(written, ids[at:]))
        net.settle(written)
        assert torch.equal(torch.cat(residual), torch.cat(rows))
        assert differing(read, written) == []


def test_batches_that_make_no_sense_are_refused():
    net = network("base")
    a, b = net.new_state(), net.new_state()
    with pytest.raises(RequestError, match="at most 8 rows, not 9"):
        net.window([(a, [1] * 5), (b, [2] * 4)])
    with pytest.raises(RequestError, match="once only"):
        net.window([(a, [1]), (a, [2])])
    with pytest.raises(RequestError, match="at least one conversation"):
        net.window([])
    with pytest.raises(RequestError, match="no tokens"):
        net.window([(a, [1]), (b, [])])
    assert a.length == b.length == 0
