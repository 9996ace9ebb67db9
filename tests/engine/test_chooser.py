"""Windows of any depth choose what windows of one row choose, from the exact distribution, and remember only that."""

import functools

import numpy as np
import pytest

from strata.engine import Chooser, NotFiniteError, NothingAllowedError, Sampling
from strata.errors import RequestError, StrataError
from support.windows import decode, drafter, seeded

V = 32
MODEL = seeded(V, 1.5)
EVERYTHING = Sampling(
    1.3, top_k=25, top_p=0.97, min_p=0.01, seed=5, typical_p=0.98, repetition_penalty=1.2, frequency_penalty=0.3,
    presence_penalty=-0.4, penalty_window=9, logit_bias={3: 2.0, 4: -100},
)  # fmt: skip
SAMPLINGS = {
    "greedy": Sampling(),
    "greedy with penalties": Sampling(repetition_penalty=1.5, frequency_penalty=0.5, presence_penalty=0.5),
    "seeded": Sampling(1.0, seed=3),
    "everything": EVERYTHING,
}
PATTERNS = {"right": [7], "wrong": [0], "alternating": [7, 0], "mixed": [1, 7, 0, 2, 5]}


def chooser(sampling, **more):
    return Chooser(sampling, **({"vocabulary": V, "prompt": [1, 2, 3, 3], "logprobs": 3} | more))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("right", PATTERNS)
def test_drafts_of_any_depth_change_no_token_and_no_logprob(sampling, right):  # cases L01, L02, G07
    tokens = []
    settings = SAMPLINGS[sampling]
    alone, _ = decode(MODEL, chooser(settings), lambda *_: (), most=60, on_commit=lambda _, v: tokens.extend(v.tokens))
    assert len(tokens) == 60
    for depth in range(1, 8):
        drafted, rows = [], []
        guess = drafter(alone, depth, PATTERNS[right], V)

        def note(_, verdict, drafted=drafted, rows=rows):
            drafted.extend(verdict.tokens)
            rows.append(verdict.rows)
            assert verdict.rows == len(verdict.tokens)

        decode(MODEL, chooser(settings), guess, most=60, on_commit=note)
        assert drafted == tokens
        if right == "right":
            assert rows[1] == depth + 1
        if right == "wrong":
            assert set(rows) == {1}


def upper_point(freedom: int) -> float:
    """Upper 0.001 point of chi-square (Wilson and Hilferty 1931, good to 1% from 10 degrees on)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.0902 * (2 / (9 * freedom)) ** 0.5) ** 3


@functools.cache
def pairs(arm: str, sampling: Sampling) -> np.ndarray:
    """Counts [V, V] of the first two tokens over 20,000 seeds."""
    first = MODEL(())
    guess = {
        "off": lambda *_: (),
        "on": lambda *_: (int(first.argmax()),),
        "biased": lambda *_: (5,),
    }[arm]
    cached = functools.cache(MODEL)
    counts = np.zeros((V, V), int)
    for seed in range(20_000):
        chosen = Chooser(Sampling(sampling.temperature, sampling.top_k, sampling.top_p, seed=seed), vocabulary=V)
        # The first window already has a guess, so that the second token comes from a drafted row or a fresh one.
        guesses = guess()
        rows = np.stack([cached(tuple(guesses[:n])) for n in range(len(guesses) + 1)])
        text = [token.id for token in chosen.verify(rows, guesses, 0).tokens]
        if len(text) < 2:
            text += [token.id for token in chosen.verify(cached((text[0],))[None], (), 1).tokens]
        counts[text[0], text[1]] += 1
    return counts


def exact(logits, sampling):
    p = np.exp((logits.astype(np.float64) - logits.max()) / sampling.temperature)
    order = np.argsort(-p)
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0
    if sampling.top_p < 1:
        kept = int((p[order].cumsum() < sampling.top_p * p.sum()).sum()) + 1
        p[order[kept:]] = 0
    return p / p.sum()


def fits(counts, p):
    """Whether counts may come from probabilities, by a chi-square test at 0.001."""
    assert not counts[p == 0].any()
    expected = p * counts.sum()
    # The test needs about five draws a cell, so the rarest count together.
    order = np.argsort(expected)
    rare = max(int((expected < 5).sum()), int((expected[order].cumsum() < 5).sum()) + 1)
    cells = np.append(np.zeros(rare, int), np.arange(1, len(p) - rare + 1))
    observed, expected = np.bincount(cells, counts[order]), np.bincount(cells, expected[order])
    return float(((observed - expected) ** 2 / expected).sum()) < upper_point(len(expected) - 1)


@pytest.mark.parametrize("arm", ["off", "on", "biased"])
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.8, top_k=20, top_p=0.9)], ids=["plain", "filtered"])
def test_draws_of_two_tokens_follow_the_exact_probabilities(arm, sampling):  # case L04
    counts = pairs(arm, sampling)
    first = exact(MODEL(()), sampling)
    both = np.stack([first[token] * exact(MODEL((token,)), sampling) for token in range(V)])
    assert fits(counts.ravel(), both.ravel())
    assert fits(counts.sum(1), first)
    assert fits(counts.sum(0), both.sum(0))
    assert (counts == pairs("off", sampling)).all(), "the very same draws"


class Counting:
    """A constraint in plain Python: tokens rise by at most `step`, and the text may end from `end` on."""

    def __init__(self, step: int, end: int, stop: int) -> None:
        self.step, self.end, self.stop = step, end, stop
        self.taken: list[int] = []

    @property
    def finished(self):
        return bool(self.taken) and self.taken[-1] == V - 2

    def allowed(self):
        last = self.taken[-1] if self.taken else -1
        mask = np.zeros(V, bool)
        mask[last + 1 : min(last + self.step + 1, V - 1)] = True
        mask[self.stop] = last >= self.end
        return mask

    def advance(self, token):
        if not self.allowed()[token] or token == self.stop:
            raise StrataError(f"{token} is not allowed")
        self.taken.append(token)

    def forced(self):
        return []

    def fork(self):
        raise NotImplementedError


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("right", PATTERNS)
def test_a_constraint_hears_of_the_text_and_nothing_else(sampling, right):  # case L11
    settings = SAMPLINGS[sampling]
    alone, verdict = decode(
        MODEL, chooser(settings, constraint=Counting(6, 20, V - 1), stop_ids=[V - 1]), lambda *_: (), most=60,
        stop_ids=[V - 1],
    )  # fmt: skip
    assert verdict.error is None
    assert alone[-1] == V - 1
    assert alone[:-1] == sorted(alone[:-1])
    for depth in range(1, 8):
        constraint = Counting(6, 20, V - 1)

        def replayed(text, _, constraint=constraint):
            assert constraint.taken == [token for token in text if token != V - 1]

        guess = drafter(alone, depth, PATTERNS[right], V)
        drafted, _ = decode(
            MODEL, chooser(settings, constraint=constraint, stop_ids=[V - 1]), guess, most=60, stop_ids=[V - 1],
            on_commit=replayed,
        )  # fmt: skip
        assert drafted == alone


def test_a_finished_constraint_leaves_stop_tokens_alone():
    constraint = Counting(99, 99, V - 1)
    constraint.taken = [V - 2]
    (token,) = chooser(Sampling(), constraint=constraint, stop_ids=[7, 8]).verify(MODEL(())[None], (), 0).tokens
    assert token.id in {7, 8}


def test_a_state_without_a_way_out_is_an_error_of_its_own():
    class Stuck(Counting):
        def allowed(self):
            return super().allowed() if len(self.taken) < 2 else np.zeros(V, bool)

    for guesses in ((), (0, 1, 2)):
        rows = np.zeros((4, V), np.float32)
        subject = chooser(Sampling(), constraint=Stuck(9, 20, V - 1), stop_ids=[V - 1])
        text, verdict = [], subject.verify(rows[: 1 + len(guesses)], guesses, 0)
        while True:
            text += [token.id for token in verdict.tokens]
            if verdict.error:
                break
            verdict = subject.verify(rows[:1], (), len(text))
        assert text == [0, 1]
        assert isinstance(verdict.error, NothingAllowedError)
        assert "position 2 no token may be chosen" in str(verdict.error)
        assert verdict.rows == len(verdict.tokens) + 1


def test_a_constraint_that_fails_ends_the_request_with_its_error():
    class Broken(Counting):
        def advance(self, token):
            raise StrataError(f"no more after {token}")

    verdict = chooser(Sampling(), constraint=Broken(9, 20, V - 1), stop_ids=[V - 1]).verify(
        np.zeros((2, V), np.float32), (0,), 0
    )
    assert [token.id for token in verdict.tokens] == [0]
    assert str(verdict.error) == "no more after 0"
    assert verdict.rows == 1


def test_a_constraint_without_a_stop_token_is_refused():
    with pytest.raises(RequestError, match="at least one stop token"):
        chooser(Sampling(), constraint=Counting(1, 1, 1))


@pytest.mark.parametrize("token", [-1, V])
def test_a_stop_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(RequestError, match=f"^stop token {token} is outside the vocabulary of {V}$"):
        chooser(Sampling(), stop_ids=[1, token])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=repr)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("masked", [False, True], ids=["free", "constrained"])
@pytest.mark.parametrize("drafts", [0, 3], ids="drafts-{}".format)
@pytest.mark.parametrize("bad", range(4), ids="row-{}".format)
def test_numbers_that_are_not_finite_end_the_request_at_their_row(bad, drafts, masked, sampling, value):  # case P02
    def model(text):
        logits = MODEL(text).copy()
        if len(text) == bad:
            logits[V - 3] = value  # which the constraint does not allow yet: that makes no difference
        return logits

    def subject():
        constraint = Counting(6, 20, V - 1) if masked else None
        return chooser(SAMPLINGS[sampling], constraint=constraint, stop_ids=[V - 1]), constraint

    expected, _ = decode(MODEL, subject()[0], lambda *_: (), most=bad, stop_ids=[V - 1]) if bad else ([], None)
    hope, _ = decode(MODEL, subject()[0], lambda *_: (), most=8, stop_ids=[V - 1])
    chosen, constraint = subject()
    text, verdict = decode(model, chosen, drafter(hope, drafts, [7], V), most=8, stop_ids=[V - 1])
    assert text == expected
    assert isinstance(verdict.error, NotFiniteError)
    assert f"for token {V - 3} at position {bad}" in str(verdict.error)
    if constraint:
        assert constraint.taken == expected


def test_a_row_behind_a_refused_guess_may_hold_anything():
    rows = np.stack([MODEL(()), np.full(V, np.nan, np.float32)])
    best = int(rows[0].argmax())
    verdict = chooser(Sampling()).verify(rows, ((best + 1) % V,), 0)
    assert [token.id for token in verdict.tokens] == [best]
    assert verdict.error is None
