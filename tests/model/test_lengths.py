"""Lengths around the sizes that matter: chunk 64, indexer block 4, budget 16, pass 512 (cases O04, O06, O07)."""

import pytest
import torch

from support.network import network, prompt

LIMIT = 1e-4


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
        net.commit(single, net.window(single, [token]), 1)
    at_once = net.new_state()
    expected = net.logits(net.read(at_once, ids))
    for T in [*range(1, 24), *range(60, 70), *range(125, 132), 199, 200]:
        state = net.new_state()
        whole = net.logits(net.read(state, ids[:T]))
        assert (whole - expected[:T]).abs().max() < LIMIT
        step = net.window(states[T - 1], [ids[T - 1]])
        assert (net.logits(step.residual)[0] - whole[-1]).abs().max() < LIMIT
        net.commit(states[T - 1], step, 1)
        for (part, a), (_, b) in zip(state.tensors(), states[T - 1].tensors(), strict=True):
            assert a.shape == b.shape, part
            assert torch.all((a - b).abs() < LIMIT), part


def test_passes_of_512_rows_leave_the_bytes_of_pieces_that_end_there():
    net, ids = network("other"), prompt("other", 700)
    a, b = net.new_state(), net.new_state()
    whole = net.read(a, ids)
    pieces = torch.cat([net.read(b, ids[:512]), net.read(b, ids[512:])])
    assert torch.equal(whole, pieces)
    assert all(torch.equal(x, y) for (_, x), (_, y) in zip(a.tensors(), b.tensors(), strict=True))
