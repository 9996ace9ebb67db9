"""Mixture of experts (model spec, section 9)."""

import torch
from torch import Tensor

from strata.model import weights
from strata.model.ops import Route
from strata.ops.elementwise.fixed import sigmoid, silu
from strata.ops.linear.fixed import linear


def route(m: Tensor, router: Tensor, topk: int) -> Route:
    """Pick the `topk` most probable experts of each row of `m` [T, H] and renormalise their weights."""
    probabilities = linear(m, router).softmax(-1)
    p, experts = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    p = p[:, :topk]
    return Route(experts[:, :topk], p / p.sum(-1, keepdim=True))


def expert(m: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """One expert on rows `m` [T, H]: down(silu(gate m) * up m)."""
    return linear(silu(linear(m, gate)) * linear(m, up), down)


def experts(m: Tensor, chosen: Route, w: weights.Moe) -> Tensor:
    """Weighted sum of each row's experts, added in the router's order: [T, H].

    Rows are grouped by expert, so that an expert's weights are read once for all of them.
    """
    rows, topk = chosen.experts.shape
    each = m.new_empty(rows, topk, m.shape[1])
    for e in chosen.experts.unique().tolist():
        t, j = (chosen.experts == e).nonzero(as_tuple=True)
        each[t, j] = expert(m[t], w.gate[e], w.up[e], w.down[e])
    out = torch.zeros_like(m)
    for j in range(topk):
        out = out + chosen.weights[:, j : j + 1] * each[:, j]
    return out


def shared_expert(m: Tensor, w: weights.Moe) -> Tensor:
    """The expert every row visits, weighted by its own sigmoid gate: [T, H]."""
    gate = sigmoid(linear(m, w.shared_weight[None]))
    return gate * expert(m, w.shared_gate, w.shared_up, w.shared_down)
