"""Compiled products of quantised matrices, one kernel per block type and processor family.

Numba compiles them at first use and keeps them on disk. Every one gives the bytes of `strata.experts.judge`.
"""

from strata.experts.kernels.activations import quantise_rows
from strata.experts.kernels.floats import float_product
from strata.experts.kernels.kernel import Kernel, kernel, product
from strata.experts.kernels.swiglu import combine, swiglu

__all__ = ["Kernel", "combine", "float_product", "kernel", "product", "quantise_rows", "swiglu"]
