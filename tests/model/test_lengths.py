"""Lengths around the sizes that matter: chunk 64, indexer block 4, budget 16, pass 512 (cases O04, O06, O07)."""

import contextlib
import itertools

import pytest
import torch

from support.network import network, prompt
from support.states import differing


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("name", ["base", "other"])
def test_reading_t_tokens_equals_t_minus_one_and_then_one(name):
    net, ids = network(name), prompt(name, 200)
    single, states = net.new_state(), []
    for token in ids:
        states.append(single.clone())
        net.commit(single, net.window([(single, [token])])[0], 1)
    at_once = net.new_state()
    expected = net.logits(net.read(at_once, ids))
    for T in [*range(1, 24), *range(60, 70), *range(125, 132), 199, 200]:
        state = net.new_state()
        whole = net.logits(net.read(state, ids[:T]))
        assert torch.equal(whole, expected[:T])
        step = net.window([(states[T - 1], [ids[T - 1]])])[0]
        assert torch.equal(net.logits(step.residual)[0], whole[-1])
        net.commit(states[T - 1], step, 1)
        assert differing(state, states[T - 1]) == []


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def read_whole(net, ids, cuts):
    state = net.new_state()
    residual = torch.cat([net.read(state, ids[a:b]) for a, b in itertools.pairwise([0, *cuts, len(ids)])])
    logits = net.logits(net.window([(state, ids[:5])])[0].residual)
    return [residual, logits, *(t.clone() for _, t in state.tensors())]


@pytest.mark.parametrize("name", ["base", "other"])
def test_cuts_and_threads_change_no_byte(name):
    net, ids = network(name), prompt(name, 300)
    with threads(1):
        whole = read_whole(net, ids, [])
        for cuts in ([64], [128, 192], [256], [64, 128, 192, 256], [1, 63, 65, 200]):
            assert all(torch.equal(a, b) for a, b in zip(read_whole(net, ids, cuts), whole, strict=True)), cuts
    with threads(2):
        again = read_whole(net, ids, [128])
    assert all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))
