"""The rotation of q4: a Hadamard matrix along a head, which spreads a large number over all of them.

Without it one outlier takes the whole range of its block's 15 levels. The matrix is symmetric and orthogonal, so
turning twice gives the head back, and two turned heads have the product of the heads. Sums are taken in one order,
stage by stage, in float32, and multiplied once.
"""

import torch
from torch import Tensor


def rotate(x: Tensor) -> Tensor:
    """float32 [..., width] times the Hadamard matrix of its width, a power of two, over the width's root."""
    width, half = x.shape[-1], 1
    shape = x.shape
    while half < width:
        a, b = x.unflatten(-1, (-1, 2, half)).unbind(-2)
        x = torch.stack((a + b, a - b), -2).reshape(shape)
        half *= 2
    return x * width**-0.5
