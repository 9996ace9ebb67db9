"""The matrix product of a tile.

The interpreter's own goes through a library whose sums depend on where in a tile a row lies; there products are formed
in float64, where that cannot be seen after rounding.
"""

import triton
import triton.language as tl

from strata.ops.matvec.instructions import ASM


@triton.jit
def dot(x, y, total):
    """``total + x @ y``: operands of one type, float16, bfloat16 or float32; float32 sums."""
    if ASM:
        total = tl.dot(x, y, total, input_precision="ieee")
    else:
        total = total + tl.dot(x.to(tl.float64), y.to(tl.float64), out_dtype=tl.float64).to(tl.float32)
    return total


@triton.jit
def fresh(x, y):
    """``x @ y``, likewise."""
    if ASM:
        total = tl.dot(x, y, input_precision="ieee")
    else:
        total = tl.dot(x.to(tl.float64), y.to(tl.float64), out_dtype=tl.float64).to(tl.float32)
    return total


@triton.jit
def precise(x, y, total):
    """``total + x @ y`` of float32, each operand split in two for the tensor cores: some 21 of 24 bits."""
    if ASM:
        total = tl.dot(x, y, total, input_precision="tf32x3")
    else:
        total = total + tl.dot(x.to(tl.float64), y.to(tl.float64), out_dtype=tl.float64).to(tl.float32)
    return total
