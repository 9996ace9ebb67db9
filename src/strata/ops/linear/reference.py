"""Matrix product of token rows with a weight matrix: the formula."""

from torch import Tensor


def linear(x: Tensor, w: Tensor) -> Tensor:
    """Return `x @ w.T`: [T, K] and [N, K] to [T, N]."""
    return x @ w.T
