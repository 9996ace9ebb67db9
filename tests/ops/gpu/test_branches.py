"""Branches outside a capture; see tests/gpu/test_gpu_branches.py for those in one."""

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.gpu.branches import Branches
from support.branches import several


def test_results_in_order():
    found = several(Branches(graphs=False), torch.tensor([1.0, 2.0]))
    assert found.tolist() == [[2, 3], [12, 18], [10, 15], [14, 21], [22, 33], [26, 39]]
