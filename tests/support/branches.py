"""Work on branches, for tests in and out of captures."""

import torch

from strata.ops.gpu.branches import Branches


def several(branches: Branches, x: torch.Tensor) -> torch.Tensor:
    """Six numbers of x, by two bodies side by side, one that is begun and joined later, an early one, and one that
    waits for the first half of a branch."""
    start = x + 1
    branches.mark()
    halves: list[torch.Tensor] = []
    points = []

    def two_halves() -> torch.Tensor:
        halves.append(start * 3)
        points.append(branches.point())
        return start * 13

    def second() -> torch.Tensor:
        points[0]()
        return halves[0] * 2

    late = branches.begin("late", two_halves)
    following = branches.begin("following", second)
    one, two = branches.beside(lambda: start * 5, lambda: start * 7)
    early = branches.begin("early", lambda: start * 11, early=True)
    return torch.stack((start, following(), one, two, early(), late()))
