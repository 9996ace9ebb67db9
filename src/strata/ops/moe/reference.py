"""Mixture of experts (model spec, section 9): the formula in torch, and the way to compiled experts."""

import torch
from torch import Tensor

from strata.experts import compute
from strata.model import weights
from strata.model.ops import Route
from strata.ops import workers
from strata.ops.elementwise.fixed import sigmoid, silu
from strata.ops.linear.stored import linear, stored


def route(m: Tensor, router: weights.Matrix, topk: int) -> Route:
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
    if isinstance(w.gate, weights.Quantised):
        return _compiled(m, chosen, w.gate, w.up, w.down)
    gate, up, down = _tensors(w.gate, w.up, w.down)
    rows, topk = chosen.experts.shape
    each = m.new_empty(rows, topk, m.shape[1])
    for e in chosen.experts.unique().tolist():
        t, j = (chosen.experts == e).nonzero(as_tuple=True)
        each[t, j] = expert(m[t], gate[e], up[e], down[e])
    out = torch.zeros_like(m)
    for j in range(topk):
        out = out + chosen.weights[:, j : j + 1] * each[:, j]
    return out


def shared_expert(m: Tensor, w: weights.Moe) -> Tensor:
    """The expert every row visits, weighted by its own sigmoid gate: [T, H]."""
    gate = sigmoid(linear(m, w.shared_weight[None]))
    if isinstance(w.shared_gate, weights.Quantised):
        only = Route(torch.zeros((len(m), 1), dtype=torch.int64), gate)
        return _compiled(m, only, w.shared_gate, w.shared_up, w.shared_down)
    return gate * expert(m, *_tensors(w.shared_gate, w.shared_up, w.shared_down))


def _compiled(m: Tensor, chosen: Route, *parts: weights.Matrix) -> Tensor:
    """The same on matrices as they are stored, in the order of docs/numerics.md."""
    kept = [part for part in parts if isinstance(part, weights.Quantised)]
    assert len(kept) == 3, "a loader keeps all matrices of an expert or none"
    numbers = (x.contiguous().numpy() for x in (m, chosen.experts, chosen.weights))
    return torch.from_numpy(compute.experts(workers.current(), compute.Expert(*map(stored, kept)), *numbers))


def _tensors(*parts: weights.Matrix) -> list[Tensor]:
    found = [part for part in parts if isinstance(part, Tensor)]
    assert len(found) == len(parts), "a loader keeps all matrices of an expert or none"
    return found
