"""The operations on a GPU: kernels of `ops/<operation>/`, put together as `strata.model.ops.Ops` asks for them.

`ops.GpuOps` is what there is; importing it needs Triton.
"""
