"""The draft head against one hand-built from the oracle's parts (model spec, section 19.4)."""

import pytest
import torch

from strata.errors import RequestError
from strata.model.load_config import load_config
from strata.model.load_weights import load_weights
from strata.model.mtp import MtpOptions
from strata.model.network import Network
from strata.ops import bind
from support.mtp_oracle import mtp_oracle
from support.network import network, oracle_logits, prompt, stable_topk
from support.tiny import SETTINGS, MemoryDirectory, metadata, oracle, tensors

LIMIT = 1e-4
VARIANTS = {
    "global-dense": MtpOptions(),
    "stream-dense": MtpOptions(norm_per_stream=True),
    "global-sparse": MtpOptions(sparse=True),
}


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def oracle_residual(name, ids):
    """The trunk's residual before its mixer, caught by a hook."""
    model, caught = oracle(name), []
    hook = model.model.hyper_connection_mixer.register_forward_pre_hook(lambda _, args: caught.append(args[0][0]))
    try:
        with stable_topk():
            model(torch.tensor([ids]))
    finally:
        hook.remove()
    return caught[0]


def positions(first, count):
    return torch.arange(first, first + count).expand(3, -1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["base", "other"])
def test_chain_equals_the_oracle(name, variant):
    """Prompt cells from the trunk's rows, then drafts from the head's own rows, three steps deep."""
    options, ids = VARIANTS[variant], prompt(name, 70)
    head = mtp_oracle(name, norm_per_stream=options.norm_per_stream, sparse=options.sparse)
    net = network(name, drafts=True, options=options)
    state = net.new_state()
    for a, b in ((0, 1), (1, 40), (40, 69)):
        net.read(state, ids[a:b])
    got = net.draft(state, ids[69], 3)

    chain_ids, chain = ids[1:], oracle_residual(name, ids[:69])
    for logits in got:
        with stable_topk():
            expected, residual = head(torch.tensor(chain_ids), chain, positions(0, len(chain_ids)))
        assert 0.3 < expected.std() < 3
        assert (logits - expected[-1]).abs().max() < LIMIT
        assert int(logits.argmax()) == int(expected[-1].argmax())
        chain_ids = [*chain_ids, int(expected[-1].argmax())]
        chain = torch.cat((chain, residual[-1:]))


def test_variants_differ():
    ids = prompt("base", 70)
    first = {}
    for variant, options in VARIANTS.items():
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
    assert (net.logits(net.read(net.new_state(), prompt("base", 60))) - expected).abs().max() < LIMIT


def test_drafts_without_a_head_are_refused():
    config = load_config(metadata(SETTINGS["base"]))
    weights = load_weights(MemoryDirectory(tensors("base")), config)
    with pytest.raises(RequestError, match="no draft head"):
        Network(config, weights, bind("cpu", config), drafts=True)
