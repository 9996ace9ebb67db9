"""Portable IR and nothing else: any processor LLVM knows, ARM among them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import BLOCK_FLOATS, BLOCK_INTS, BYTES, I16, LANES, Emit
from strata.experts.kernels.record import START_AT
from strata.experts.kernels.targets.scalar import scalar_words
from strata.experts.kernels.targets.target import Index, Unsigned

_SHORTS = ir.VectorType(I16, 64)


@dataclass(frozen=True, slots=True)
class Plain:
    """Attributes: see `Target`."""

    name: str = "plain"
    byte_tables: None = None
    word_tables: bool = False

    def halves(self, emit: Emit, bits: ir.Value) -> ir.Value:
        """The bits moved into place, times 2^112 for the difference of the exponents' biases; exact.

        Infinities and NaN, which have no defined product, keep their exponent by a choice instead.
        """
        builder = emit.builder
        wide = emit.widened(bits, BLOCK_INTS.element)
        body = builder.shl(builder.and_(wide, emit.every(BLOCK_INTS, 0x7FFF)), emit.every(BLOCK_INTS, 13))
        sign = builder.shl(builder.and_(wide, emit.every(BLOCK_INTS, 0x8000)), emit.every(BLOCK_INTS, 16))
        scaled = builder.fmul(emit.cast(body, BLOCK_FLOATS), emit.every(BLOCK_FLOATS, 2.0**112))
        special = builder.icmp_unsigned(">=", body, emit.every(BLOCK_INTS, 0x7C00 << 13))
        kept = builder.or_(body, emit.every(BLOCK_INTS, 0x7F800000))
        magnitude = builder.select(special, kept, emit.cast(scaled, BLOCK_INTS))
        return emit.cast(builder.or_(magnitude, sign), BLOCK_FLOATS)

    def levels(self, emit: Emit, table: Sequence[int], codes: ir.Value) -> ir.Value:
        """A choice per entry."""
        found: ir.Value = emit.every(BYTES, table[0])
        for code, level in enumerate(table[1:], start=1):
            here = emit.builder.icmp_unsigned("==", codes, emit.every(BYTES, code))
            found = emit.builder.select(here, emit.every(BYTES, level), found)
        return found

    def lookup_words(self, emit: Emit, table: NDArray[np.uint16], index: Index) -> ir.Value:
        """From memory."""
        return scalar_words(emit, table, index)

    def dot(self, emit: Emit, codes: Unsigned, record: ir.Value) -> ir.Value:
        """Products as 16-bit numbers (255 * 127 fits), sums as 32-bit ones."""
        total = emit.load(record, START_AT, LANES) if codes.offset else emit.every(LANES, 0)
        for i, register in enumerate(codes.registers):
            activations = emit.builder.sext(emit.load(record, 64 * i, BYTES), _SHORTS)
            products = emit.builder.mul(emit.widened(register, I16), activations)
            for byte in range(4):
                column = emit.pick(products, range(byte, 64, 4))
                total = emit.builder.add(total, emit.builder.sext(column, LANES))
        return total
