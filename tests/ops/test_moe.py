"""Routing and experts against the formulas (model spec, section 9)."""

import numpy as np
import pytest
import torch

from strata.model import weights
from strata.ops.moe.reference import experts, route, shared_expert


def silu(x):
    return x / (1 + np.exp(-x))


def test_equal_weights_go_to_the_lower_expert_and_add_up_to_one():
    router = torch.tensor([[1.0], [2.0], [2.0], [2.0], [0.0]])
    got = route(torch.tensor([[1.0], [-1.0]]), router, 2)
    assert got.experts.tolist() == [[1, 2], [4, 0]]
    assert got.weights[0].tolist() == [0.5, 0.5]
    assert got.weights.sum(1).tolist() == pytest.approx([1, 1], abs=2**-23)


@pytest.mark.parametrize("T", [1, 3, 8, 9, 40], ids="T{}".format)
def test_windows_and_prompts_sum_the_chosen_experts(T):
    rng = np.random.default_rng(T)
    H, E, width, topk = 12, 6, 5, 3
    m, router = rng.standard_normal((T, H)), rng.standard_normal((E, H))
    gate, up = rng.standard_normal((2, E, width, H))
    down, shared = rng.standard_normal((E, H, width)), rng.standard_normal(H)
    w = weights.Moe(*(torch.from_numpy(x) for x in (router, gate, up, down, shared, gate[0], up[0], down[0])))
    expected = np.zeros((T, H))
    for t in range(T):
        p = np.exp(router @ m[t])
        p /= p.sum()
        chosen = sorted(range(E), key=lambda e: (-p[e], e))[:topk]  # used at once
        for e in chosen:
            expected[t] += p[e] / p[chosen].sum() * down[e] @ (silu(gate[e] @ m[t]) * (up[e] @ m[t]))
    x = torch.from_numpy(m)
    assert np.abs(experts(x, route(x, w.router, topk), w).numpy() - expected).max() < 1e-12
    for t in range(T):
        expected[t] = down[0] @ (silu(gate[0] @ m[t]) * (up[0] @ m[t])) / (1 + np.exp(-shared @ m[t]))
    assert np.abs(shared_expert(x, w).numpy() - expected).max() < 1e-12


def routed(logits, topk):
    """Route rows with these router logits [T, E]: one-hot inputs pick a column of the router."""
    logits = torch.as_tensor(np.asarray(logits, np.float32))
    return [route(torch.ones(1, 1), row[:, None].contiguous(), topk) for row in logits]


def plainly(logits, topk):
    """The definition: probabilities in float32, larger ones first, equal ones by lower expert; weights add up to 1."""
    p = torch.as_tensor(np.asarray(logits, np.float32)).softmax(-1).tolist()
    chosen = sorted(range(len(p)), key=lambda e: (-p[e], e))[:topk]
    total = sum(p[e] for e in chosen)
    return chosen, [p[e] / total for e in chosen]


LEVELS = [-3.0, 0.0, 0.0, 0.5, 2.0]


@pytest.mark.parametrize(("E", "topk"), [(512, 10), (16, 4), (10, 10)])
@pytest.mark.parametrize("case", ["equal", "zeros", "two levels", "few levels", "a tie at the edge", "huge", "tiny"])
def test_ties_go_to_the_lowest_experts(E, topk, case):  # case P07
    rng = np.random.default_rng(E)
    rows = {
        "equal": np.full((1, E), 3.25),
        "zeros": np.where(rng.random((4, E)) < 0.5, 0.0, -0.0),
        "two levels": (rng.random((8, E)) < 0.3).astype(float),
        "few levels": rng.choice(LEVELS, (8, E)),
        "a tie at the edge": np.sort(rng.standard_normal((4, E)))[:, ::-1].copy(),
        "huge": rng.choice([3e38, -3e38], (4, E)),
        "tiny": rng.choice([1e-40, 0.0, -1e-40], (4, E)),
    }[case]
    if case == "a tie at the edge":
        rows[:, topk - 1 :] = rows[:, topk - 1 : topk]  # everything from the last place on is equal
    for logits, got in zip(rows, routed(rows, topk), strict=True):
        chosen, weights = plainly(logits, topk)
        assert got.experts[0].tolist() == chosen
        # A sum of topk float32 numbers and a division: one rounding each.
        assert got.weights[0].tolist() == pytest.approx(weights, rel=(topk + 1) * 2**-24)
        assert float(got.weights.sum()) == pytest.approx(1, abs=topk * 2**-23)
    if case in {"equal", "zeros"}:
        assert got.experts[0].tolist() == list(range(topk))


def test_an_expert_without_probability_is_taken_last_and_weighs_nothing():  # case P07
    logits = np.full(512, -np.inf)
    logits[[500, 7, 300]] = [1.0, 1.0, 2.0]
    (got,) = routed([logits], 10)
    assert got.experts[0].tolist() == [300, 7, 500, 0, 1, 2, 3, 4, 5, 6]
    assert got.weights[0, 3:].tolist() == [0.0] * 7
    assert float(got.weights.sum()) == pytest.approx(1, abs=10 * 2**-23)


@pytest.mark.parametrize("value", [np.inf, np.nan], ids=repr)
def test_router_logits_that_mean_nothing_do_not_pass_for_numbers(value):  # cases P07 and P02
    """The weights become NaN, which reaches the logits and ends the request there; no expert is picked in silence."""
    logits = np.zeros(512)
    logits[4] = value
    (got,) = routed([logits], 10)
    assert got.weights.isnan().all()
    (got,) = routed([np.full(512, -np.inf)], 10)
    assert got.weights.isnan().all()
