"""Branches of a captured graph give what the same calls give one after the other."""

import pytest
import torch

from strata.ops.gpu.branches import Branches
from support.branches import several

pytestmark = pytest.mark.gpu


def test_a_capture_has_the_same():
    x = torch.zeros(2, device="cuda")
    branches, graph = Branches(graphs=True), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = several(branches, x)
    for i in range(3):
        x.copy_(torch.tensor([1.0, float(i)]))
        graph.replay()
        assert torch.equal(out.cpu(), several(Branches(graphs=False), x).cpu())
