"""The filters against transformers' own, and against the definitions written out in plain Python."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as judge

from strata.engine import Sampling, filters
from strata.engine.filters import likeliest


def filtered(x, sampling):
    return filters.filtered(x, np.full(len(x), np.nan), sampling)


def distribution(x, sampling):
    """Probabilities [V] of what may be drawn."""
    ids, weights = filtered(x, sampling)
    p = np.zeros(len(x))
    p[ids] = weights / weights.sum()
    return p


def scaled(logits, sampling):
    return (logits - logits.max()) / sampling.temperature


def transformers_says(logits, sampling):
    """transformers' processors in the order in which its `generate` applies them."""
    steps = [judge.TemperatureLogitsWarper(sampling.temperature)]
    steps += [judge.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    steps += [judge.TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    steps += [judge.MinPLogitsWarper(sampling.min_p)] if sampling.min_p > 0 else []
    steps += [judge.TypicalLogitsWarper(sampling.typical_p)] if sampling.typical_p < 1 else []
    scores = torch.from_numpy(logits)[None]
    for step in steps:
        scores = step(None, scores)
    return scores.softmax(-1)[0].numpy()


@pytest.mark.parametrize("typical_p", [1.0, 0.95, 0.6, 0.2], ids="typical_p-{}".format)
@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.3], ids="min_p-{}".format)
@pytest.mark.parametrize("top_p", [1.0, 0.999, 0.9, 0.4, 0.0], ids="top_p-{}".format)
@pytest.mark.parametrize("top_k", [0, 1, 7, 200, 1000], ids="top_k-{}".format)
def test_filters_leave_what_those_of_transformers_leave(top_k, top_p, min_p, typical_p):
    rng = np.random.default_rng(top_k)
    for spread, temperature in ((0.1, 1.0), (1.0, 0.3), (3.0, 0.7), (3.0, 5.0), (12.0, 1.5)):
        sampling = Sampling(temperature, top_k, top_p, min_p, typical_p=typical_p)
        logits = rng.standard_normal(1000) * spread
        got, expected = distribution(scaled(logits, sampling), sampling), transformers_says(logits, sampling)
        assert (got > 0).tolist() == (expected > 0).tolist()
        # A few operations in float64 on probabilities of at most 1.
        assert np.abs(got - expected).max() < 1e-12


def plain(x, s):
    """The definitions of docs/sampling.md, one token at a time: what is kept, as a set of ids."""
    kept = sorted((i for i in range(len(x)) if x[i] > -math.inf), key=lambda i: (-x[i], i))
    w = [math.exp(v) for v in x]
    if s.top_k:
        kept = kept[: s.top_k]
    if s.top_p < 1:
        kept = shortest(kept, w, s.top_p)
    if s.min_p > 0:
        kept = [i for i in kept if w[i] >= s.min_p * w[kept[0]]]
    kept = [i for i in kept if w[i] > 0]
    if s.typical_p < 1:
        total = math.fsum(w[i] for i in kept)
        information = {i: -math.log(w[i] / total) for i in kept}
        entropy = math.fsum(w[i] / total * information[i] for i in kept)
        kept = shortest(sorted(kept, key=lambda i: (abs(information[i] - entropy), i)), w, s.typical_p)
    return set(kept)


def shortest(order, w, share):
    wanted = share * math.fsum(w[i] for i in order)
    return next(
        order[:n] for n in range(1, len(order) + 1) if n == len(order) or math.fsum(w[i] for i in order[:n]) >= wanted
    )


# Weights that are powers of two add up exactly in any order, so ties and exact shares are decided without rounding.
EXACT = st.lists(st.sampled_from([0, -1, -2, -3, -4, -5, -math.inf]), min_size=1, max_size=24)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.875, 0.999, 1.0])


@settings(max_examples=400, deadline=None)
@given(EXACT, st.integers(0, 30), SHARES, st.sampled_from([0.0, 0.01, 0.125, 0.25, 0.5, 1.0]))
def test_ties_and_exact_shares_follow_the_definitions(powers, top_k, top_p, min_p):
    x = np.array([0, *powers]) * math.log(2)
    # exp(k ln 2) is a power of two but for the last bits; the shares are moved off the edge by more than that.
    sampling = Sampling(1.0, top_k, max(0.0, top_p - 1e-12) if top_p < 1 else 1.0, max(0.0, min_p - 1e-12))
    assert set(filtered(x, sampling)[0].tolist()) == plain(x, sampling)


def test_a_share_that_is_met_exactly_is_met():
    x = np.zeros(8)  # weights of exactly 1
    assert filtered(x, Sampling(1.0, top_p=0.5))[0].tolist() == [0, 1, 2, 3]
    assert filtered(x, Sampling(1.0, top_k=4, top_p=0.5))[0].tolist() == [0, 1]
    assert filtered(x, Sampling(1.0, typical_p=0.25))[0].tolist() == [0, 1]
    assert filtered(x, Sampling(1.0, min_p=1.0))[0].tolist() == [*range(8)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-40 * 128, 0).map(lambda n: n / 128), min_size=1, max_size=40),
    st.integers(0, 45),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
@example([-1.0], 0, 1.0, 0.0, 0.0)  # neither is near the entropy
def test_anything_else_follows_them_too(values, top_k, top_p, min_p, typical_p):
    x = np.array([0.0, *values])
    sampling = Sampling(1.0, top_k, top_p, min_p, typical_p=typical_p)
    ids = set(filtered(x, sampling)[0].tolist())
    assert ids
    if ids == plain(x, sampling):
        return
    # On an edge, rounding decides; then a share moved by a rounding gives the same set.
    moves = itertools.product((-1e-12, 0, 1e-12), repeat=3)
    near = [[min(1, max(0, v + m)) for v, m in zip((top_p, min_p, typical_p), move, strict=True)] for move in moves]
    assert ids in [plain(x, Sampling(1.0, top_k, a, b, typical_p=c)) for a, b, c in near]


@pytest.mark.parametrize("count", [1, 5, 40, 400, 5000])
@pytest.mark.parametrize("spread", [0.0, 0.01, 3.0, 30.0])
def test_the_likeliest_are_those_of_a_full_sort(spread, count):
    x = np.round(np.random.default_rng(1).standard_normal(3000) * spread, 1)  # many ties
    x -= x.max()
    x[::3] = -np.inf
    order = [i for i in np.lexsort((np.arange(3000), -x)).tolist() if x[i] > -np.inf]
    if x.max() < 0:
        x[1] = 0
        order = [1, *(i for i in order if i != 1)]
    assert likeliest(x, count).tolist() == order[:count]


def test_forbidden_tokens_do_not_come_back_through_a_filter():
    x = np.array([-np.inf, 0.0, -1.0, -np.inf, -50.0])
    for change in ({}, {"top_k": 4}, {"top_k": 5}, {"top_p": 1 - 1e-16}, {"typical_p": 0.999999}, {"min_p": 1e-300}):
        ids = filtered(x, Sampling(1.0, **change))[0].tolist()
        assert set(ids) <= {1, 2, 4}
        assert 1 in ids
