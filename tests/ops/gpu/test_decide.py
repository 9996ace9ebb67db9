"""Answers whose tokens a device chooses are those that the host would have chosen, whatever is guessed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine import Drafting, Finish, FinishReason, Generation, Guesses, Request, Sampling, Token, step
from strata.engine.choice import NotFiniteError
from strata.model import Network
from strata.model.decision import Decision, Greedy
from support.launch import NATIVE
from support.network import network, prompt

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


class Deciding:
    """The CPU's operations, with the choosing of a GPU."""

    def __init__(self, network: Network) -> None:
        self._ops, self._vocabulary = network.ops, network.config.V
        self.decided = 0
        self.network = replace(network, ops=self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def decide(self, done: Sequence[tuple[Any, Any]], rules: Sequence[Greedy]) -> list[Decision]:
        from strata.ops import dependent
        from strata.ops.gpu.choice import TOP, Choice

        logits = torch.from_numpy(self.network.predictions([one for _, one in done]))
        fed = [one.ids for _, one in done]
        choice = Choice(len(logits), len(done), self._vocabulary, DEVICE)
        banned = torch.zeros(self._vocabulary, dtype=torch.int8)
        banned[torch.from_numpy(rules[0].banned)] = 1
        ids = torch.tensor([i for one in fed for i in one], dtype=torch.int32)
        first = torch.tensor([0, *np.cumsum([len(one) for one in fed])], dtype=torch.int32)
        top = TOP if any(rule.top for rule in rules) else 1
        choice.prepare(rules)
        choice.launch(*(x.to(DEVICE) for x in (logits, banned, ids, first)), top, dependent.launch(DEVICE))
        choice.launched()
        decisions = choice.read(fed, rules, top)
        for (state, one), decision in zip(done, decisions, strict=True):
            self.network.commit(state, one, len(decision.ids))
        self.decided += 1
        return decisions


class Oracle:
    """Guesses of which so many are right."""

    def __init__(self, text: list[int], right: int) -> None:
        self.text, self.right, self.at = text, right, 0

    def guess(self, state: Any, tokens: Sequence[int], most: int) -> Guesses:  # noqa: ARG002
        self.at += len(tokens)
        known = self.text[self.at : self.at + min(5, most)]
        return Guesses(tuple(t if i < self.right else (t + 1) % 512 for i, t in enumerate(known)), "oracle")

    def learn(self, guesses: int, accepted: int, seconds: float) -> None: ...


def answers(net: Network, requests: list[Request], drafter: Any = None) -> tuple[list[list[Any]], list[Any]]:
    """Events of each, and the states after them."""
    running = [Generation(net, net.new_state(), request, drafter=drafter) for request in requests]
    events: list[list[Any]] = [[] for _ in running]
    for generation, found in zip(running, events, strict=True):
        while generation.reading:
            found.extend(generation.read())
    while any(not g.finished for g in running):
        for found, new in zip(events, step(net, running), strict=True):
            found.extend(new)
    return events, [generation.state for generation in running]


def same(ours: list[Any], theirs: list[Any]) -> None:
    """Tokens and ends are equal; log-probabilities but for float32's sum of 512 exponentials."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(b, Finish):
            assert a == b
            assert a.usage == b.usage
        else:
            assert (a.id, [i for i, _ in a.top]) == (b.id, [i for i, _ in b.top])
            assert abs(a.logprob - b.logprob) < 2e-6


@pytest.mark.parametrize("right", [0, 2, 5])
def test_guesses(right):
    ids = tuple(prompt("other", 30))
    request = Request("", ids, max_tokens=20, logprobs=2, drafting=Drafting(0), banned=[3])
    expected, [theirs] = answers(network("other"), [request])
    text = [e.id for e in expected[0] if isinstance(e, Token)]
    request = replace(request, stop_ids=frozenset((text[-2], 511)))
    expected, [theirs] = answers(network("other"), [request], Oracle(text, right))
    device = Deciding(network("other"))
    found, [ours] = answers(device.network, [request], Oracle(text, right))
    same(found[0], expected[0])
    assert device.decided == found[0][-1].usage.windows > 1
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(ours.tensors(), theirs.tensors(), strict=True))


def test_several_conversations_and_one_that_the_host_has_to_choose_for():
    requests = [Request("", tuple(prompt("other", 9 + i, i)), max_tokens=3 + i, drafting=Drafting(0)) for i in range(3)]
    requests[1] = replace(requests[1], sampling=Sampling(temperature=1.0, seed=4))
    expected, _ = answers(network("other"), requests)
    device = Deciding(network("other"))
    found, _ = answers(device.network, requests)
    for ours, theirs in zip(found, expected, strict=True):
        same(ours, theirs)
    assert device.decided == 1, "when the sampled one, of four tokens, has ended"


def test_a_row_that_computes_no_numbers_says_what_the_host_says(monkeypatch):
    ids = tuple(prompt("other", 12))
    request = Request("", ids, max_tokens=9, drafting=Drafting(0))
    whole, _ = answers(network("other"), [request])
    text = [e.id for e in whole[0] if isinstance(e, Token)]

    def broken(self, passes):
        found = original(self, passes).copy()
        if len(found) == 6:
            found[3, 100] = np.nan
        return found

    original = Network.predictions
    monkeypatch.setattr(Network, "predictions", broken)
    expected, [theirs] = answers(network("other"), [request], Oracle(text, 5))
    found, [ours] = answers(Deciding(network("other")).network, [request], Oracle(text, 5))
    same(found[0], expected[0])
    assert [e.id for e in found[0][:-1]] == text[:4]
    assert found[0][-1].reason is FinishReason.ERROR
    assert isinstance(found[0][-1].error, NotFiniteError)
    assert str(found[0][-1].error) == str(expected[0][-1].error)
    assert ours.length == theirs.length == len(ids) + 3
