"""The forward pass against transformers' Qwen4ExpForCausalLM in float32.

Limit 1e-4 at a logit standard deviation of about 0.5. Both sides lie within 7e-5 of the same pass in float64
(docs/parity.md), so a larger difference is an error, not rounding.
"""

import itertools

import pytest
import torch

from support.network import network, oracle_logits, prompt, stable_topk
from support.tiny import SETTINGS, oracle

LIMIT = 1e-4
LENGTH = 150  # the indexer's budget is 16 (base) or 24 (other) tokens

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.inference_mode():
        yield


def read_in_pieces(name, ids, cuts):
    net = network(name)
    state = net.new_state()
    edges = [0, *cuts, len(ids)]
    residual = torch.cat([net.read(state, ids[a:b]) for a, b in itertools.pairwise(edges)])
    assert state.length == len(ids)
    return net.logits(residual)


@pytest.mark.parametrize("name", SETTINGS)
def test_one_pass(name):
    expected = oracle_logits(name, LENGTH)
    assert 0.3 < expected.std() < 0.8
    ours = read_in_pieces(name, prompt(name, LENGTH), [])
    assert (ours - expected).abs().max() < LIMIT


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "cuts",
    [list(range(1, LENGTH)), list(range(7, LENGTH, 7)), list(range(64, LENGTH, 64)), [1, 3, 66, 67, 130], [63, 128]],
    ids=["chunk1", "chunk7", "chunk64", "odd", "edges"],
)
def test_prompt_read_in_chunks(name, cuts):
    ours = read_in_pieces(name, prompt(name, LENGTH), cuts)
    assert (ours - oracle_logits(name, LENGTH)).abs().max() < LIMIT


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("rows", [1, 2, 5, 8], ids="rows{}".format)
def test_prefill_then_windows(name, rows):
    ids, net = prompt(name, LENGTH), network(name)
    state = net.new_state()
    parts = [net.logits(net.read(state, ids[:90]))]
    for first in range(90, LENGTH, rows):
        window = net.window(state, ids[first : first + rows])
        net.commit(state, window, len(window.ids))
        parts.append(net.logits(window.residual))
    assert (torch.cat(parts) - oracle_logits(name, LENGTH)).abs().max() < LIMIT


def test_prefill_far_beyond_the_indexer_budget():
    ids = prompt("base", 600, seed=5)
    ours = read_in_pieces("base", ids, [512])
    assert (ours - oracle_logits("base", 600, 5)).abs().max() < LIMIT


def test_mrope_positions_of_images():
    """Two images of 3x4 and 2x2 patches between texts: the three axes differ, and tokens share positions."""
    ids, t, h, w, at = prompt("base", 60), [], [], [], 0
    for kind, size in (("text", 9), ("image", (3, 4)), ("text", 14), ("image", (2, 2)), ("text", 21)):
        if kind == "text":
            axes = [list(range(at, at + size))] * 3
            at += size
        else:
            rows, columns = size
            axes = [
                [at] * (rows * columns),
                [at + r for r in range(rows) for _ in range(columns)],
                [at + c for _ in range(rows) for c in range(columns)],
            ]
            at += max(rows, columns)
        for target, values in zip((t, h, w), axes, strict=True):
            target.extend(values)
    positions = torch.tensor([t, h, w])
    assert positions.shape == (3, 60)
    with stable_topk():
        expected = oracle("base")(torch.tensor([ids]), position_ids=positions[:, None]).logits[0]
    net = network("base")
    for cuts in ([], [12], [5, 30, 31]):
        state, parts = net.new_state(), []
        edges = [0, *cuts, 60]
        for a, b in itertools.pairwise(edges):
            parts.append(net.read(state, ids[a:b], positions[:, a:b].T))
        assert (net.logits(torch.cat(parts)) - expected).abs().max() < LIMIT
    plain = net.logits(net.read(net.new_state(), ids))
    assert (plain - expected).abs().max() > 100 * LIMIT, "the positions must matter"
    # text after an image continues from the largest position, not from the token count
    assert state.next_position == at < state.length
    follow = net.window(state, [7])
    assert follow.positions.tolist() == [[at] * 3]


def test_two_sequences_share_nothing():
    net = network("base")
    a, b = net.new_state(), net.new_state()
    ids = prompt("base", 80)
    alone = net.logits(net.read(net.new_state(), ids))
    parts = []
    for first in range(0, 80, 20):
        parts.append(net.read(a, ids[first : first + 20]))
        net.read(b, ids[40 - first // 2 : 60 - first // 2])
    assert (net.logits(torch.cat(parts)) - alone).abs().max() < LIMIT
