"""Penalties and bias against transformers and against the formulas in plain Python."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from strata.engine import Chooser, NothingAllowedError, Sampling, choose
from strata.engine.penalties import History
from strata.errors import RequestError

V = 12


def penalised(logits, sampling, prompt, answer):
    history = History(prompt, len(logits), sampling.penalty_window)
    for token in answer:
        history.add(token)
    x = logits.astype(np.float64)
    history.penalise(x, sampling)
    return x


def plain(logits, s, prompt, answer):
    marked = [(t, False) for t in prompt] + [(t, True) for t in answer]
    if s.penalty_window >= 0:
        marked = marked[len(marked) - min(len(marked), s.penalty_window) :]
    said = Counter(t for t, ours in marked if ours)
    x = [float(v) for v in logits]
    for t in {t for t, _ in marked}:
        x[t] = x[t] / s.repetition_penalty if x[t] > 0 else x[t] * s.repetition_penalty
    for t, times in said.items():
        x[t] -= s.frequency_penalty * times + s.presence_penalty
    return x


TOKENS = st.lists(st.integers(0, V - 1), max_size=20)


@settings(max_examples=300, deadline=None)
@given(
    TOKENS, TOKENS, st.integers(-1, 25), st.sampled_from([1.0, 1.3, 0.5, 100.0, 0.01]),
    st.sampled_from([0.0, 0.5, 2.0, -2.0]), st.sampled_from([0.0, 0.7, -2.0]), st.integers(0, 99),
)  # fmt: skip
def test_penalties_follow_the_formulas(prompt, answer, window, repetition, frequency, presence, seed):
    sampling = Sampling(
        repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence, penalty_window=window
    )
    logits = np.random.default_rng(seed).standard_normal(V).astype(np.float32) * 5
    got = penalised(logits, sampling, prompt, answer)
    assert got == pytest.approx(plain(logits, sampling, prompt, answer), rel=1e-14, abs=1e-14)


def test_the_repetition_penalty_is_that_of_transformers():
    logits = np.random.default_rng(3).standard_normal(V).astype(np.float32)
    prompt, answer = [1, 2, 2, 7], [3, 7, 0]
    expected = RepetitionPenaltyLogitsProcessor(1.7)(
        torch.tensor([prompt + answer]), torch.from_numpy(logits).double()[None]
    )
    assert penalised(logits, Sampling(repetition_penalty=1.7), prompt, answer).tolist() == expected[0].tolist()


def answer(count, sampling, prompt=(0,), logits=None, **more):
    """Tokens of a model that always predicts the same."""
    chooser = Chooser(sampling, vocabulary=V, prompt=prompt, **more)
    logits = np.linspace(3, 1, V, dtype=np.float32) if logits is None else logits
    tokens = []
    for position in range(count):
        verdict = chooser.verify(logits[None], (), position)
        assert verdict.error is None
        tokens += [token.id for token in verdict.tokens]
    return tokens


def test_penalties_change_greedy_text():
    assert answer(5, Sampling()) == [0] * 5
    assert answer(5, Sampling(repetition_penalty=50.0)) == [1, 2, 3, 4, 5]  # the prompt's 0 counts
    assert answer(5, Sampling(presence_penalty=2.0)) == [0, 1, 2, 3, 4]  # it does not
    assert answer(5, Sampling(presence_penalty=2.0, penalty_window=1)) == [0, 1, 0, 1, 0]
    assert answer(5, Sampling(repetition_penalty=50.0, presence_penalty=2.0, penalty_window=0)) == [0] * 5
    assert answer(6, Sampling(frequency_penalty=0.1)) == [0, 0, 1, 0, 1, 0]  # 3, 2.9, 2.82, 2.8, 2.72, 2.7


def test_a_bias_is_added_and_minus_a_hundred_forbids():
    logits = np.array([150.0, 40.0, 0.0, -60.0], np.float32)
    assert choose(logits, Sampling(logit_bias={1: 100, 0: -20}), 0).id == 1
    assert choose(logits, Sampling(logit_bias={0: -100}), 0).id == 1  # though 150 - 100 would win
    assert choose(logits, Sampling(logit_bias={0: -99.9}), 0).id == 0
    hot = [choose(logits, Sampling(50.0, logit_bias={0: -100, 1: -100}, seed=s), 0).id for s in range(60)]
    assert set(hot) == {2, 3}
    with pytest.raises(NothingAllowedError, match="position 9 no token"):
        choose(logits, Sampling(logit_bias=dict.fromkeys(range(4), -100)), 9)


def test_bias_and_penalties_leave_log_probabilities_alone():
    logits = np.array([1.0, 2.0, 3.0, 0.0], np.float32)
    raw = [choose(logits, Sampling(), 0, top=4).top]
    for sampling in (
        Sampling(logit_bias={0: 50, 2: -100}),
        Sampling(2.0, top_k=1, repetition_penalty=9.0),
        Sampling(1.0, top_p=0.0, frequency_penalty=2.0),
    ):
        chooser = Chooser(sampling, vocabulary=4, prompt=[2, 2], logprobs=4)
        for position in range(3):
            (token,) = chooser.verify(logits[None], (), position).tokens
            raw.append(token.top)
            assert token.logprob == dict(token.top)[token.id]
    assert len(set(raw)) == 1


@pytest.mark.parametrize("asked", [None, 0, 1, 3, 20])
def test_alternatives_are_sorted_and_no_likelier_than_certain(asked):  # case G07
    for logits in (
        np.random.default_rng(5).standard_normal(50).astype(np.float32) * 4,
        np.array([900.0, *[0.0] * 49], np.float32),
        np.zeros(50, np.float32),
    ):
        chooser = Chooser(Sampling(), vocabulary=50, banned=[7, 8], logprobs=asked)
        (token,) = chooser.verify(logits[None], (), 0).tokens
        p = np.exp(logits.astype(np.float64) - logits.max())
        p[[7, 8]] = 0
        p /= p.sum()
        order = sorted(set(range(50)) - {7, 8}, key=lambda i: (-p[i], i))[: asked or 0]
        assert [i for i, _ in token.top] == order
        shifted = logits.astype(np.float64) - logits.max()
        total = math.log(math.fsum(math.exp(shifted[i]) for i in range(50) if i not in {7, 8}))
        # exp, log and a difference of magnitudes up to 900: the sum of their roundings.
        assert [v for _, v in token.top] == pytest.approx([shifted[i] - total for i in order], abs=1e-12)
        assert all(v <= 0 for _, v in token.top)
        assert token.logprob <= 0


@pytest.mark.parametrize("value", [-1, 21, 1.0, "3", True], ids=repr)
def test_logprobs_out_of_range_are_refused(value):
    with pytest.raises(RequestError, match=r"^logprobs must be an integer from 0 to 20, not "):
        Chooser(Sampling(), vocabulary=4, logprobs=value)


def test_a_bias_outside_the_vocabulary_is_refused():
    assert Chooser(Sampling(logit_bias={3: 1}), vocabulary=4)
    with pytest.raises(RequestError, match=r"^logit_bias: token id 4 is outside the vocabulary of 4$"):
        Chooser(Sampling(logit_bias={4: 1, 2: 1}), vocabulary=4)
