"""Products and experts on the worker pool."""

from strata.experts.compute.linear import linear, product
from strata.experts.compute.matrix import KERNEL_TYPES, Stored
from strata.experts.compute.moe import Expert, experts

__all__ = ["KERNEL_TYPES", "Expert", "Stored", "experts", "linear", "product"]
