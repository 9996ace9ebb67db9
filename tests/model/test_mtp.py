"""The draft head against one hand-built from the oracle's parts (model spec, section 19.4)."""

import pytest
import torch

from strata.errors import RequestError
from strata.model.load_config import load_config
from strata.model.load_weights import load_weights
from strata.model.network import Network
from strata.ops import bind
from support import parity
from support.network import network, oracle_logits, prompt
from support.tiny import SETTINGS, MemoryDirectory, metadata, tensors


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("variant", parity.VARIANTS)
@pytest.mark.parametrize("name", ["base", "other"])
def test_chain_equals_the_oracle(name, variant):
    """Prompt cells from the trunk's rows, then drafts from the head's own rows, three steps deep (case L12)."""
    for ours, expected in parity.drafts(name, variant):
        assert 0.3 < expected.std() < 3
        assert parity.difference(ours, expected) < parity.LIMIT
        assert int(ours.argmax()) == int(expected.argmax())


def test_variants_differ():
    ids = prompt("base", 70)
    first = {}
    for variant, options in parity.VARIANTS.items():
        net = network("base", drafts=True, options=options)
        state = net.new_state()
        net.read(state, ids)
        first[variant] = net.draft(state, 5, 1)[0]
    values = list(first.values())
    assert (values[0] - values[1]).abs().max() > 0.01
    assert (values[0] - values[2]).abs().max() > 0.01


def test_drafting_commits_nothing_and_repeats():
    net, ids = network("base", drafts=True), prompt("base", 50)
    state = net.new_state()
    net.read(state, ids)
    before = [(n, t.clone()) for n, t in state.tensors()]
    a = net.draft(state, 9, 4)
    b = net.draft(state, 9, 4)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert all(torch.equal(t, u) for (_, t), (_, u) in zip(before, state.tensors(), strict=True))


def test_the_head_does_not_touch_the_text():
    expected = oracle_logits("base", 60)
    net = network("base", drafts=True)
    assert (net.logits(net.read(net.new_state(), prompt("base", 60))) - expected).abs().max() < parity.LIMIT


def test_drafts_without_a_head_are_refused():
    config = load_config(metadata(SETTINGS["base"]))
    weights = load_weights(MemoryDirectory(tensors("base")), config)
    with pytest.raises(RequestError, match="no draft head"):
        Network(config, weights, bind("cpu", config), drafts=True)
