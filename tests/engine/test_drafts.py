"""Guessing ahead never changes the text, the log-probabilities or the state (cases L01, L02, L07, L09)."""

import pytest
import torch

from strata.engine import Drafting, Finish, Guesses, Sampling, Token, generate
from strata.errors import RequestError
from support.network import network, prompt

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

    def __init__(self, text, right):
        self.text = text
        self.right = right
        self.windows = []
        self._at = 0

    def guess(self, state, tokens, most):  # noqa: ARG002  # the signature of a drafter
        self._at += len(tokens)
        right = self.right[len(self.windows) % len(self.right)]
        known = self.text[self._at : self._at + min(7, most)]
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
