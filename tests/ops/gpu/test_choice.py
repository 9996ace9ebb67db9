"""Choice and acceptance kernels against the engine's own choice."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine import Sampling
from strata.engine.choice import NotFiniteError
from strata.engine.chooser import Chooser
from strata.model.decision import Greedy
from support.launch import NATIVE

V = 2100
DEVICE = torch.device("cuda" if NATIVE else "cpu")
BANNED = np.array([5, 17, V - 1])


class Window:
    """Logits of a window of several conversations, and what the engine's chooser makes of them."""

    def __init__(self, logits: torch.Tensor, guesses: list[list[int]], stops: list[tuple[int, ...]], top: int) -> None:
        self.logits, self.guesses = logits, guesses
        self.rules = [Greedy(BANNED, stop, top) for stop in stops]

    def decided(self):
        """By the device."""
        from strata.ops import dependent
        from strata.ops.gpu.choice import TOP, Choice

        banned = torch.zeros(V, dtype=torch.int8)
        banned[BANNED] = 1
        counts = [1 + len(ids) for ids in self.guesses]
        fed = [(7, *ids) for ids in self.guesses]
        choice = Choice(len(self.logits), len(fed), V, DEVICE)
        ids = torch.tensor([i for one in fed for i in one], dtype=torch.int32)
        first = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
        top = TOP if any(rule.top for rule in self.rules) else 1
        choice.prepare(self.rules)
        on_device = [x.to(DEVICE) for x in (self.logits, banned, ids, first)]
        choice.launch(*on_device, top, dependent.launch(DEVICE))
        choice.launched()
        decisions = choice.read(fed, self.rules, top)
        assert choice.accepted.tolist() == [len(one.ids) for one in decisions]
        return decisions

    def verdicts(self):
        """By the host."""
        begin = 0
        for guesses, rule in zip(self.guesses, self.rules, strict=True):
            chooser = Chooser(Sampling(), vocabulary=V, banned=BANNED, stop_ids=rule.stop_ids, logprobs=rule.top)
            yield chooser.verify(self.logits[begin : begin + 1 + len(guesses)].numpy(), guesses, 0)
            begin += 1 + len(guesses)

    def check(self) -> None:
        """Both say the same."""
        for decision, verdict in zip(self.decided(), self.verdicts(), strict=True):
            assert decision.ids == tuple(token.id for token in verdict.tokens)
            assert (decision.broken is None) == (verdict.error is None)
            if verdict.error:
                assert decision.broken == len(verdict.tokens)
                assert isinstance(verdict.error, NotFiniteError)
            for token, logprob, top in zip(verdict.tokens, decision.logprobs, decision.tops, strict=True):
                # A float32 sum of 2100 exponentials of 2 ulp each.
                assert abs(logprob - token.logprob) < 2e-6
                assert [i for i, _ in top] == [i for i, _ in token.top]
                assert np.allclose([x for _, x in top], [x for _, x in token.top], rtol=0, atol=2e-6)


def _logits(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * 4


@pytest.mark.parametrize("top", [0, 20])
def test_likeliest_tokens_and_their_probabilities(top):
    logits = _logits(5, 2)
    logits[1] = 0.5  # all equal: the lowest ids
    logits[2, 700] = logits[2, 30] = logits[2, 2090] = 99  # of equal ones the lower
    logits[3, 5] = torch.nan  # of a banned id: nobody's business
    logits[4, 17] = torch.inf
    Window(logits, [[]] * 5, [(1,)] * 5, top).check()


@pytest.mark.parametrize("right", [0, 3, 7])
def test_windows_of_guesses(right):
    """The first guesses right, then one wrong, then right ones again that nobody may look at."""
    logits = _logits(8, right)
    logits[:, BANNED] = -50
    best = logits.argmax(-1).tolist()[:7]
    guesses = [*best[:right], *([8] if right < 7 else []), *best[right + 1 :]]
    Window(logits, [guesses], [(1,)], 0).check()
    for end in {0, max(0, right - 1), min(6, right + 1)}:
        Window(logits, [guesses], [(1, best[end])], 0).check()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("row", [0, 1, 2, 3, 5])
def test_a_row_that_is_no_distribution(value, row):
    """In conversations of one, three and two rows, the last one's second row refused."""
    logits = _logits(6, 9)
    logits[:, BANNED] = -50
    best = logits.argmax(-1).tolist()
    logits[row, 400] = value
    Window(logits, [[], best[1:3], [8]], [(1,), (1, 2), (3,)], 0).check()


def test_nothing_but_banned_ids():
    from strata.ops import dependent
    from strata.ops.gpu.choice import Choice

    rule = Greedy(np.arange(4), (), 0)
    choice = Choice(1, 1, 4, DEVICE)
    zero = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    first = torch.tensor([0, 1], dtype=torch.int32, device=DEVICE)
    ones = torch.ones(4, dtype=torch.int8, device=DEVICE)
    choice.prepare([rule])
    choice.launch(torch.zeros(1, 4, device=DEVICE), ones, zero, first, 1, dependent.launch(DEVICE))
    choice.launched()
    assert choice.read([[7]], [rule], 1)[0].broken == 0
