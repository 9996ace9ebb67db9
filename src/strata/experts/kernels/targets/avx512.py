"""AVX-512 with VNNI: Cascade Lake, Ice Lake, Zen 4 and later."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import BLOCK_FLOATS, BYTES, HALF, I8, I16, LANES, WORDS16, Emit
from strata.experts.kernels.record import START_AT
from strata.experts.kernels.targets.scalar import scalar_words
from strata.experts.kernels.targets.target import ByteTables, Index, Unsigned


class Vbmi:
    """Byte tables by permuting two registers at a time."""

    def look_up(self, emit: Emit, table: NDArray[np.uint8], low: ir.Value, high: Sequence[ir.Value]) -> ir.Value:
        """128 entries per permutation of two registers; the rest of the index chooses among them."""
        found = []
        for start in range(0, len(table), 128):
            a, b = (emit.constant(I8, table[start + k : start + k + 64]) for k in (0, 64))
            found.append(emit.call("llvm.x86.avx512.vpermi2var.qi.512", BYTES, [a, low, b]))
        top = emit.builder.icmp_signed("<", low, emit.every(BYTES, 0))
        for bit in (top, *high):
            found = [emit.builder.select(bit, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        return found[0]


@dataclass(frozen=True, slots=True)
class Avx512:
    """Attributes: see `Target`."""

    name: str
    byte_tables: ByteTables | None
    word_tables: bool = True

    def halves(self, emit: Emit, bits: ir.Value) -> ir.Value:
        """One conversion."""
        return emit.builder.fpext(emit.cast(bits, ir.VectorType(HALF, 8)), BLOCK_FLOATS)

    def levels(self, emit: Emit, table: Sequence[int], codes: ir.Value) -> ir.Value:
        """One byte shuffle."""
        padded = [*table, *([0] * (16 - len(table)))]
        return emit.call("llvm.x86.avx512.pshuf.b.512", BYTES, [emit.constant(I8, padded * 4), codes])

    def lookup_words(self, emit: Emit, table: NDArray[np.uint16], index: Index) -> ir.Value:
        """64 entries per permutation of two registers, up to 1024 of them; beyond that from memory.

        Measured on Zen 4, time of the whole kernel: IQ2_S (1024 entries) by permutations 0.82 of a gather; IQ1_M (2048)
        by permutations 1.39 of a gather, one by one 0.93 of it.
        """
        if len(table) > 1024:
            return scalar_words(emit, table, index)
        found = []
        for start in range(0, len(table), 64):
            a, b = (emit.constant(I16, table[start + k : start + k + 32]) for k in (0, 32))
            found.append(emit.call("llvm.x86.avx512.vpermi2var.hi.512", WORDS16, [a, index.vector, b]))
        bit = 6
        while len(found) > 1:
            masked = emit.builder.and_(index.vector, emit.every(WORDS16, 1 << bit))
            chosen = emit.builder.icmp_unsigned("!=", masked, emit.every(WORDS16, 0))
            found = [emit.builder.select(chosen, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
            bit += 1
        return found[0]

    def dot(self, emit: Emit, codes: Unsigned, record: ir.Value) -> ir.Value:
        """One instruction per register; the offset is taken off beforehand."""
        total = emit.load(record, START_AT, LANES) if codes.offset else emit.every(LANES, 0)
        for i, register in enumerate(codes.registers):
            operands = [total, register, emit.load(record, 64 * i, BYTES)]
            total = emit.call("llvm.x86.avx512.vpdpbusd.512", LANES, operands)
        return total
