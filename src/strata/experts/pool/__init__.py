"""Threads that compute experts and large matrices, and the choice of processors they run on."""

from strata.experts.pool.pool import Pool
from strata.experts.pool.topology import Choice, Machine, choose, read

__all__ = ["Choice", "Machine", "Pool", "choose", "read"]
