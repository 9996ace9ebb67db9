"""Guessing ahead never changes the text, the log-probabilities or the state (cases L01, L02, L07, L09)."""

import functools
import itertools
import random

import pytest
import torch

from strata.engine import Drafting, Finish, Generation, Guesses, Request, Sampling, Token, generate, step
from strata.errors import RequestError
from support.network import network, prompt
from support.states import differing

SAMPLINGS = {"greedy": Sampling(), "seeded": Sampling(temperature=1.5, top_k=8, seed=11)}
DRAFTINGS = [
    *(Drafting(depth) for depth in range(1, 8)),
    *(Drafting(depth, lookup=False, head=True, floor=0.0) for depth in (1, 3, 7)),
    Drafting(4, lookup=False, head=True, floor=0.05),
    Drafting(5, head=True, floor=0.0),
    Drafting(7, measured=True, head=True, floor=0.0),
    Drafting(7, measured=True, lookup=False, head=True),
]


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def run(sampling, drafting, ids, count=40, **more):
    net = network("other", drafts=True)
    state = net.new_state()
    events = list(generate(net, state, ids, sampling, max_tokens=count, drafting=drafting, **more))
    net.settle(state)
    return events, [(name, tensor.clone()) for name, tensor in state.tensors()]


def same(a, b):
    return all(x == y and torch.equal(t, u) for (x, t), (y, u) in zip(a, b, strict=True))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafting", DRAFTINGS, ids=str)
def test_text_and_state_are_those_without_drafts(sampling, drafting):
    ids = prompt("other", 50) * 2  # beyond the indexer's budget, and worth a lookup
    plain, state = run(SAMPLINGS[sampling], None, ids)
    assert len(plain) == 41
    assert isinstance(plain[-1], Finish)
    events, after = run(SAMPLINGS[sampling], drafting, ids)
    assert events == plain  # tokens and log-probabilities, to the last bit
    assert same(after, state)


class Oracle:
    """A drafter that knows the text, and is right for a given number of its guesses in each window."""

    def __init__(self, text, right, depth=7):
        self.text = text
        self.depth = depth
        self.right = right
        self.windows = []
        self._at = 0

    def guess(self, state, tokens, most):  # noqa: ARG002  # the signature of a drafter
        self._at += len(tokens)
        right = self.right[len(self.windows) % len(self.right)]
        known = self.text[self._at : self._at + min(self.depth, most)]
        return Guesses(tuple(t if i < right else (t + 1) % 512 for i, t in enumerate(known)), "oracle")

    def learn(self, guesses, accepted, seconds):
        assert seconds > 0
        self.windows.append((guesses, accepted))


@pytest.mark.parametrize("right", [[7], [0], [3], [1, 7, 0, 2, 5], [6, 4]], ids=str)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_any_pattern_of_right_and_wrong_guesses(sampling, right):
    ids = prompt("other", 70)
    plain, state = run(SAMPLINGS[sampling], None, ids)
    oracle = Oracle([e.id for e in plain if isinstance(e, Token)], right)
    events, after = run(SAMPLINGS[sampling], None, ids, drafter=oracle)
    assert events == plain
    assert same(after, state)
    usage = events[-1].usage
    assert usage.windows == len(oracle.windows)
    assert usage.drafted["oracle"] == sum(guesses for guesses, _ in oracle.windows)
    assert usage.accepted["oracle"] == sum(accepted for _, accepted in oracle.windows)
    if right == [7]:
        assert oracle.windows == [(7, 7)] * 4 + [(6, 6)], "guesses that are all right are all taken"


@functools.cache
def plain_decode(count=24):
    """Tokens of a greedy answer, and the settled state after each."""
    with torch.inference_mode():
        net, ids = network("other", drafts=True), prompt("other", 70)
        state = net.new_state()
        generation = Generation(net, state, Request("", tuple(ids), max_tokens=count))
        tokens, states = generation.read(), {}
        while not generation.finished:
            tokens += step(net, [generation])[0]
            states[state.length] = settled(net, state)
        return [t.id for t in tokens[:-1]], states


def settled(net, state):
    copy = state.clone()
    net.settle(copy)
    return copy


RANDOM = tuple(random.Random(5).randrange(8) for _ in range(30))
PATTERNS = [(k,) for k in range(8)] + [RANDOM]


@pytest.mark.parametrize("depth", range(1, 8), ids="depth{}".format)
@pytest.mark.parametrize("right", PATTERNS, ids=lambda r: f"right{r[0]}" if len(r) == 1 else "random")
def test_the_state_after_every_window_is_that_of_plain_decode(depth, right):
    """Case L02: always wrong, right for exactly k of n, always right, random; all of the state after each window."""
    if len(right) == 1 and right[0] > depth:
        return  # the same as right for all of them
    tokens, states = plain_decode()
    net = network("other", drafts=True)
    oracle = Oracle(tokens, right, depth)
    generation = Generation(
        net, net.new_state(), Request("", tuple(prompt("other", 70)), max_tokens=24), drafter=oracle
    )
    got = generation.read()
    while not generation.finished:
        got += step(net, [generation])[0]
        assert differing(settled(net, generation.state), states[generation.state.length]) == []
    assert [t.id for t in got[:-1]] == tokens
    for (guesses, accepted), good in zip(oracle.windows, itertools.cycle(right), strict=False):
        assert accepted == min(good, guesses)


@pytest.mark.parametrize("when", ["fresh", "restored", "after a cancel", "moved"])
def test_a_drafter_that_is_the_target_is_always_right(when):
    """Case L07: 100% of the drafts of the target itself are taken, wherever the state comes from."""
    tokens, _ = plain_decode()
    net, ids = network("other", drafts=True), prompt("other", 70)
    state = net.new_state()
    first = 0
    if when != "fresh":
        first = 50
        net.read(state, ids[:50])
    if when == "restored":
        kept = state.clone()
        net.read(state, [5] * 30)
        state = kept
    elif when == "after a cancel":
        r = Request("", (*ids[:50], *ids[50:60]), max_tokens=9)
        cancelled = Generation(net, state.clone(), r, 50, drafter=Oracle([1] * 9, [7]))
        cancelled.read()
        step(net, [cancelled])
        cancelled.cancel()
    elif when == "moved":
        others = [Generation(net, net.new_state(), Request("", (i, 7), max_tokens=9)) for i in range(3)]
        for other in others:
            other.read()
        step(net, others)
        state = state.clone()
    oracle = Oracle(tokens, [7])
    generation = Generation(net, state, Request("", tuple(ids), max_tokens=24), first, drafter=oracle)
    got = generation.read()
    while not generation.finished:
        got += step(net, [generation])[0]
    assert [t.id for t in got[:-1]] == tokens
    usage = generation.finished.usage
    assert usage.drafted == usage.accepted == {"oracle": 20}
    assert usage.windows == 3


def test_a_stop_token_inside_a_window_ends_the_text_there():
    ids = prompt("other", 70)
    plain, _ = run(Sampling(), None, ids)
    text = [e.id for e in plain if isinstance(e, Token)]
    stop = next(t for i, t in enumerate(text) if i > 8 and t not in text[:i])
    expected, state = run(Sampling(), None, ids, stop_ids=[stop])
    events, after = run(Sampling(), None, ids, stop_ids=[stop], drafter=Oracle(text, [7]))
    assert events == expected
    assert events[-1].stop_id == stop
    assert same(after, state)


def test_limits_hold_to_the_token():
    for count in (1, 2, 7, 8, 9, 17):
        events, _ = run(Sampling(), Drafting(7), [1, 2, 3] * 10, count=count)
        assert len(events) == count + 1
        assert events[-1].tokens == count


def test_options_out_of_range_are_refused():
    for depth in (-1, 8, 2.0, True):
        with pytest.raises(RequestError, match="from 0 to 7"):
            Drafting(depth)
    with pytest.raises(RequestError, match="floor"):
        Drafting(3, floor=1.5)
    net = network("other")
    with pytest.raises(RequestError, match="without drafts"):
        generate(net, net.new_state(), [1], Sampling(), drafting=Drafting(2, head=True))
