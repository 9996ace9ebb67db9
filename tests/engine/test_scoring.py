"""Scoring a given text (case G10)."""

import math

import pytest
import torch

from strata.engine import Drafting, Generation, NotFiniteError, Request, Sampling, score, step
from strata.errors import RequestError
from support.network import network, oracle_logits, prompt
from support.wrapped import with_logits

LIMIT = 1e-4
"""Ours and the oracle's logits differ by less (docs/parity.md), so log-probabilities by less than twice that."""


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("length", [1, 2, 5, 63, 64, 65, 200], ids="length{}".format)
def test_values_are_those_of_the_oracle_whatever_the_chunks_and_drafts(length):
    ids = prompt("other", length)
    expected = torch.log_softmax(oracle_logits("other", length).double(), -1)
    whole = list(score(network("other"), network("other").new_state(), ids, top=3))
    assert [s.id for s in whole] == ids
    assert (whole[0].logprob, whole[0].top) == (None, ())
    for place in range(1, length):
        row, got = expected[place - 1], whole[place]
        assert got.logprob == pytest.approx(float(row[ids[place]]), abs=2 * LIMIT)
        assert [p for _, p in got.top] == sorted((p for _, p in got.top), reverse=True)
        assert got.top[0][1] == pytest.approx(float(row.max()), abs=2 * LIMIT)
        assert got.logprob <= got.top[0][1]
    for drafts in (False, True):
        net = network("other", drafts=drafts)
        for rows in (16, 64, 7):
            assert list(score(net, net.new_state(), ids, top=3, rows=rows)) == whole


def test_values_beside_other_requests_that_draft():
    """Scoring goes on between the windows of others, pass by pass."""
    net, ids = network("other", drafts=True), prompt("other", 200)
    whole = list(score(net, net.new_state(), ids))
    drafting = Drafting(5, head=True, floor=0.0)
    other = Generation(net, net.new_state(), Request("", tuple(ids[:40]), max_tokens=50, drafting=drafting))
    other.read()
    got = []
    for scored in score(net, net.new_state(), ids, rows=16):
        got.append(scored)
        if len(got) % 16 == 0 and not other.finished:
            step(net, [other])
    assert got == whole


def test_a_generated_token_has_the_value_it_was_given():
    net, ids = network("other"), prompt("other", 50)
    generation = Generation(
        net, net.new_state(), Request("", tuple(ids), Sampling(temperature=1.0, seed=4), max_tokens=9)
    )
    tokens = generation.read()
    while not generation.finished:
        tokens += step(net, [generation])[0]
    text = [*ids, *(t.id for t in tokens[:-1])]
    scored = list(score(net, net.new_state(), text))
    assert [s.logprob for s in scored[50:]] == [t.logprob for t in tokens[:-1]]


def test_banned_ids_have_no_probability():
    net, ids = network("other"), [5, 9, 7, 9]
    scored = list(score(net, net.new_state(), ids, banned=[9], top=512))
    assert [s.logprob == -math.inf for s in scored[1:]] == [True, False, True]
    assert all(math.fsum(math.exp(p) for _, p in s.top) == pytest.approx(1) for s in scored[1:])
    assert all(9 not in dict(s.top) for s in scored[1:])


def test_the_state_afterwards_is_that_of_the_text():
    net, ids = network("other"), prompt("other", 30)
    state, read = net.new_state(), net.new_state()
    list(score(net, state, ids))
    net.read(read, ids)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(state.tensors(), read.tensors(), strict=True))


def test_what_makes_no_sense_is_refused():
    net = network("other")
    state = net.new_state()
    with pytest.raises(RequestError, match="nothing to score"):
        score(net, state, [])
    with pytest.raises(RequestError, match="1025 tokens, but the context holds 1024"):
        score(net, state, [1] * 1025)
    net.read(state, [1])
    with pytest.raises(RequestError, match="empty state"):
        score(net, state, [1])
    broken = with_logits(net, lambda logits: logits * float("nan"))
    with pytest.raises(NotFiniteError, match="position 1"):
        list(score(broken, net.new_state(), [1, 2]))
