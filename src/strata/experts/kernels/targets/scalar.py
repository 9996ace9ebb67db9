"""Table look-ups one by one, for tables that no register holds.

Where a block holds indices as whole bytes or words, they are read one by one: IQ3_XXS gained 44% over taking them out
of a register, IQ2_XS 9% (AVX2 code on Zen 4). Indices computed as a vector are taken out of it: putting them together
as scalars was slower (IQ3_S by 37%), sending the vector through memory too (by 40%), and a gather (IQ1_M by 7%).
"""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import I16, I32, I64, Emit
from strata.experts.kernels.targets.target import Index


def elements(emit: Emit, vector: ir.Value) -> list[ir.Value]:
    """A vector's elements as scalars."""
    return [emit.builder.extract_element(vector, I32(i)) for i in range(vector.type.count)]


def scalar_words(emit: Emit, table: NDArray[np.uint16], index: Index) -> ir.Value:
    """Table entries of 16 bits."""
    return _look_up(emit, emit.table(I16, table), I16, index.scalars or elements(emit, index.vector))


def scalar_longs(emit: Emit, table: NDArray[np.uint32], indices: Sequence[ir.Value], per_vector: int) -> list[ir.Value]:
    """Table entries of 32 bits; of n vectors of ``per_vector`` entries, the first takes every n-th, and so on."""
    longs, count = emit.table(I32, table), len(indices) // per_vector
    return [_look_up(emit, longs, I32, indices[i::count]) for i in range(count)]


def _look_up(emit: Emit, table: ir.Value, element: ir.IntType, indices: Sequence[ir.Value]) -> ir.Value:
    size = element.width // 8
    found = []
    for index in indices:
        address = emit.builder.gep(table, [emit.builder.mul(emit.builder.zext(index, I64), I64(size))])
        found.append(emit.builder.load(emit.builder.bitcast(address, element.as_pointer()), align=size))
    return emit.gather(element, found)
