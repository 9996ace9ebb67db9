"""Compiled products of quantised matrices, one kernel per block type and processor family.

Numba compiles them at first use and keeps them on disk. Every one gives the bytes of `strata.experts.judge`.
"""

from strata.experts.kernels.activations import quantise_rows
from strata.experts.kernels.kernel import Kernel, kernel, product

__all__ = ["Kernel", "kernel", "product", "quantise_rows"]
