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
