"""Registers and stacks of kernels that have been at their limits."""

import pytest

pytest.importorskip("triton")

from strata.lab.codegen.build import build
from strata.lab.codegen.counts import Counts, count
from strata.lab.codegen.kernels import all_kernels


def _counts(name: str, architecture: int) -> Counts:
    (kernel,) = (one for one in all_kernels() if one.name == name and one.architectures == (architecture,))
    return count(build(kernel, architecture), kernel)


@pytest.mark.parametrize("architecture", [86, 89, 90, 120])
def test_the_pairs_of_a_chunk_need_no_stack(architecture):
    """A byte of it is reserved for every thread of the card: 648 of them were 175 MB on an H200."""
    assert _counts("prompt.pairs", architecture).stack == 0


def test_a_launch_with_a_limit_of_registers_is_compiled_with_it():
    assert _counts("qsa.choose", 90).registers <= 64
