"""Work on branches, for tests in and out of captures."""

import torch

from strata.ops.gpu.branches import Branches


def several(branches: Branches, x: torch.Tensor) -> torch.Tensor:
    """Five numbers of x, by two bodies side by side, one that is begun and joined later, and an early one."""
    start = x + 1
    branches.mark()
    late = branches.begin("late", lambda: start * 3)
    one, two = branches.beside(lambda: start * 5, lambda: start * 7)
    early = branches.begin("early", lambda: start * 11, early=True)
    return torch.stack((start, late(), one, two, early()))
