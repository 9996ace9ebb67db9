"""The rows of the n-gram table that a forward pass really reads (cases P03, P08)."""

import itertools

import numpy as np
import pytest
import torch

from strata.errors import StrataError
from support.network import network, prompt
from support.wrapped import wrapped


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def slow_rows(ids, c):
    """Section 10.2 in Python's integers: the rows of every token of a text."""
    rows = []
    for t in range(len(ids)):
        mixed, dead = ids[t] * c.multipliers[0], False
        rows.append([])
        for lag in range(1, c.n):
            token = ids[t - lag] if t >= lag else c.eos
            dead = dead or token == c.eos
            mixed ^= (c.eos if dead else token) * c.multipliers[lag]
            heads = range((lag - 1) * c.heads, lag * c.heads)
            rows[-1] += [mixed % c.sizes[h] + c.offsets[h] for h in heads]
    return rows


def recording(name):
    """A network and the list of row numbers it reads, call by call."""
    seen = []

    def ngram_ask(real, numbers, w):
        seen.append(numbers.copy())
        got = real(numbers, w)
        numbers[:] = -1 << 40  # whoever uses them after they were asked for is found out
        return got

    return wrapped(network(name), ngram_ask=ngram_ask), seen


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_prompts_of_600_tokens_in_chunks(chunk):
    net, seen = recording("other")
    ids = prompt("other", 600)
    state = net.new_state()
    for first in range(0, 600 if chunk > 1 else 120, chunk):
        net.read(state, ids[first : first + chunk])
        torch.full((1 << 14,), float("-inf"))  # what was freed is written over
    assert np.concatenate(seen).tolist() == slow_rows(ids, net.config.ple)[: state.length]


def test_four_conversations_in_windows_and_after_a_restore():
    net, seen = recording("other")
    texts = [prompt("other", 30 + i, seed=i) for i in range(4)]
    states = [net.new_state() for _ in texts]
    for i, (state, ids) in enumerate(zip(states, texts, strict=True)):
        net.read(state, ids[: 10 + i])
    expected = [slow_rows(ids, net.config.ple) for ids in texts]
    for tick, order in zip(range(16), itertools.cycle([(0, 1, 2, 3), (3, 1), (2,), (1, 0, 3)]), strict=False):
        if tick == 5:
            states = [state.clone() for state in states]  # as a restore gives them back
        rows = 2 if len(order) < 4 else 1
        at = [states[i].length for i in order]
        seen.clear()
        passes = net.window([(states[i], texts[i][a : a + rows]) for i, a in zip(order, at, strict=True)])
        assert seen[0].tolist() == [row for i, a in zip(order, at, strict=True) for row in expected[i][a : a + rows]]
        for i, done in zip(order, passes, strict=True):
            net.commit(states[i], done, 1)


def test_overwritten_numbers_end_in_an_error():
    def numbers(real, batch):
        got = real(batch)
        got[-1, 2] = 0x7F800000  # a float's infinity
        return got

    net = wrapped(network("other"), ngram_numbers=numbers)
    state = net.new_state()
    with pytest.raises(StrataError, match=r"row 2139095040 of the n-gram table .*token 2 of its pass, number 2"):
        net.read(state, [1, 2, 3])
    assert state.length == 0
