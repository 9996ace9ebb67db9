"""Table look-ups one by one, for tables that no register holds."""

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import I16, I32, I64, Emit


def scalar_words(emit: Emit, table: NDArray[np.uint16], index: ir.Value) -> ir.Value:
    """Table entries of 16 bits at a vector of 16-bit indices."""
    return _look_up(emit, emit.table(I16, table), I16, 2, index)


def scalar_longs(emit: Emit, table: NDArray[np.uint32], index: ir.Value) -> ir.Value:
    """Table entries of 32 bits at a vector of indices."""
    return _look_up(emit, emit.table(I32, table), I32, 4, index)


def _look_up(emit: Emit, table: ir.Value, element: ir.Type, size: int, index: ir.Value) -> ir.Value:
    found = []
    for i in range(index.type.count):
        place = emit.builder.zext(emit.builder.extract_element(index, I32(i)), I64)
        address = emit.builder.gep(table, [emit.builder.mul(place, I64(size))])
        found.append(emit.builder.load(emit.builder.bitcast(address, element.as_pointer()), align=size))
    return emit.gather(element, found)
