"""Table look-ups one by one, for tables that no register holds."""

from collections.abc import Iterable

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import I8, I16, I32, I64, Emit


def scalar_words(emit: Emit, table: NDArray[np.uint16], index: ir.Value) -> ir.Value:
    """Table entries of 16 bits at a vector of indices."""
    return ScalarTable(emit, emit.table(I16, table), I16, index).entries(range(index.type.count))


class ScalarTable:
    """A table in memory and the indices into it, in memory too.

    The indices are computed as a vector. Taking them out of the register one by one costs two instructions each on the
    one port that also puts the entries together; from memory it is one load. The loads are atomic (in effect plain
    ones) because otherwise LLVM replaces them by what was stored, that is by taking them out of the register.
    """

    def __init__(self, emit: Emit, table: ir.Value, element: ir.IntType, index: ir.Value) -> None:
        self._emit, self._table, self._element = emit, table, element
        with emit.builder.goto_entry_block():
            place = emit.builder.alloca(index.type)
        emit.builder.store(index, place)
        self._kind = index.type.element
        self._indices = emit.builder.bitcast(place, I8.as_pointer())

    def entries(self, places: Iterable[int]) -> ir.Value:
        """The entries at some of the indices."""
        return self._emit.gather(self._element, [self._entry(place) for place in places])

    def _entry(self, place: int) -> ir.Value:
        builder = self._emit.builder
        size = self._kind.width // 8
        at = builder.bitcast(builder.gep(self._indices, [I64(size * place)]), self._kind.as_pointer())
        index = builder.zext(builder.load_atomic(at, "monotonic", size), I64)
        width = self._element.width // 8
        address = builder.gep(self._table, [builder.mul(index, I64(width))])
        return builder.load(builder.bitcast(address, self._element.as_pointer()), align=width)


def long_table(emit: Emit, table: NDArray[np.uint32], index: ir.Value) -> ScalarTable:
    """A table of 32-bit entries."""
    return ScalarTable(emit, emit.table(I32, table), I32, index)
