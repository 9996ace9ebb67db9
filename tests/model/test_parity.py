"""The forward pass against transformers' Qwen4ExpForCausalLM in float32; support/parity.py explains the limit."""

import pytest
import torch

from support import parity
from support.network import network, oracle_logits, prompt
from support.tiny import SETTINGS

SCENARIOS = parity.scenarios()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("name", SETTINGS)
def test_the_oracle_says_something(name):
    logits = oracle_logits(name, parity.LENGTH)
    assert 0.2 < logits.std() < 0.8  # a quarter of the width halves it: 0.30 for "slim", 0.4 to 0.6 for the others
    assert 0 in prompt(name, parity.LENGTH), "an EOS inside the prompt"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_logits_equal_the_oracle(scenario):
    assert SCENARIOS[scenario]() < parity.LIMIT


def test_image_positions_matter_and_text_continues_after_them():
    ids, positions = prompt("base", 60), parity.image_positions()
    with_images = parity.in_pieces("base", ids, [], positions)
    assert parity.difference(parity.in_pieces("base", ids, []), with_images) > 100 * parity.LIMIT
    net = network("base")
    state = net.new_state()
    net.read(state, ids, positions)
    after = int(positions.max()) + 1
    assert state.next_position == after < state.length
    assert net.window([(state, [7])])[0].positions.tolist() == [[after] * 3]


def test_sequences_share_nothing():
    """Case J02: two conversations interleaved equal each alone."""
    net = network("base")
    a, b = net.new_state(), net.new_state()
    ids = prompt("base", 80)
    alone = net.logits(net.read(net.new_state(), ids))
    parts = []
    for first in range(0, 80, 20):
        parts.append(net.read(a, ids[first : first + 20]))
        net.read(b, ids[40 - first // 2 : 60 - first // 2])
    assert parity.difference(net.logits(torch.cat(parts)), alone) < parity.LIMIT
