"""Comparing states byte for byte."""

import torch

from strata.model import State


def differing(a: State, b: State) -> list[str]:
    """Names of the parts of two states that are not the same bytes; settle states with a draft head first."""
    left, right = dict(a.tensors()), dict(b.tensors())
    assert left.keys() == right.keys()
    return [name for name in left if not torch.equal(left[name], right[name])]
