"""What rows visit, put together: the judge's sums, with a shared expert of the others' size and of another."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.experts import judge
from strata.ops.gpu.branches import Branches
from strata.ops.gpu.rows import ExpertRows, Rows
from strata.ops.gpu.visits import Visits
from strata.ops.matvec.triton import quantise
from support.grouped import layer
from support.launch import NATIVE

H, E, TOPK = 64, 5, 2
DEVICE = "cuda" if NATIVE else "cpu"
KINDS = ("Q8_0", "Q8_0", "Q8_0")


@pytest.mark.parametrize(("rows", "inner"), [(2, 64), (2, 32), (9, 32)])
def test_rows_are_the_judges(rows, inner):
    rng = np.random.default_rng([rows, inner])
    made = layer(KINDS, H, 64, E, rng, DEVICE, shared=False)
    always = layer(KINDS, H, inner, 1, rng, DEVICE, shared=False)
    own = always.slots.data[int(always.slots.slot_of[0])][None]
    shared = replace(always.slots, data=own, slot_of=torch.zeros_like(always.slots.slot_of))
    x = torch.from_numpy(rng.standard_normal((rows, H)).astype(np.float32)).to(DEVICE)
    choosing = torch.from_numpy(rng.standard_normal((E + 1, H)).astype(np.float32)).to(DEVICE)
    config: Any = SimpleNamespace(moe=SimpleNamespace(E=E, topk=TOPK))
    w: Any = SimpleNamespace(choosing=choosing, slots=made.slots, shared=shared, tier=None)
    visits, m = Visits(config, torch.device(DEVICE), Branches(graphs=False)), Rows(x, quantise(x))
    route = visits.route(m, w)
    found = visits.rows(m, route, w)
    chosen = route.experts.cpu().numpy()
    assert np.array_equal(chosen, np.argsort(-(x @ choosing[:E].T).cpu().numpy(), axis=1, kind="stable")[:, :TOPK])
    expected = made.rows(x.cpu().numpy(), chosen, shared=False)
    besides = always.rows(x.cpu().numpy(), np.zeros((rows, 1), np.int32), shared=False)
    if rows > 8:
        assert isinstance(found, torch.Tensor)
        weights = np.concatenate((route.weights.cpu().numpy(), route.shared.cpu().numpy()[:, None]), 1)
        assert np.array_equal(found.cpu().numpy(), judge.combine(np.concatenate((expected, besides), 1), weights))
        return
    assert isinstance(found, ExpertRows)
    assert found.weights is route.weights
    assert found.shared_weights is route.shared
    assert np.array_equal(found.rows[: rows * TOPK].reshape(rows, TOPK, H).cpu().numpy(), expected)
    assert np.array_equal(found.shared.cpu().numpy(), besides[:, 0])
