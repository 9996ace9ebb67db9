"""The operations on a GPU: kernels of `ops/<operation>/`, put together as `strata.model.ops.Ops` asks for them.

Importing it needs Triton.
"""

from strata.ops.gpu.ops import GpuOps

__all__ = ["GpuOps"]
