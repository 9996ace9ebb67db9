"""AVX2 with F16C: Haswell, Zen and later. Registers of 64 bytes are handled in two halves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import BLOCK_FLOATS, BLOCK_INTS, HALF, I8, I16, Emit
from strata.experts.kernels.record import START_AT
from strata.experts.kernels.targets.scalar import scalar_words
from strata.experts.kernels.targets.target import Index, Unsigned

_BYTES = ir.VectorType(I8, 32)
_SHORTS = ir.VectorType(I16, 16)
_SHORT_LIMIT = 32767
_MOST = 127  # magnitude of an activation's code


def _half(emit: Emit, register: ir.Value, side: int) -> ir.Value:
    return emit.pick(register, range(32 * side, 32 * side + 32))


@dataclass(frozen=True, slots=True)
class Avx2:
    """Attributes: see `Target`."""

    name: str = "avx2"
    byte_tables: None = None
    word_tables: bool = False

    def halves(self, emit: Emit, bits: ir.Value) -> ir.Value:
        """One conversion."""
        return emit.builder.fpext(emit.cast(bits, ir.VectorType(HALF, 8)), BLOCK_FLOATS)

    def levels(self, emit: Emit, table: Sequence[int], codes: ir.Value) -> ir.Value:
        """One byte shuffle for each half."""
        padded = emit.constant(I8, [*table, *([0] * (16 - len(table)))] * 2)
        sides = [emit.call("llvm.x86.avx2.pshuf.b", _BYTES, [padded, _half(emit, codes, side)]) for side in (0, 1)]
        return emit.join(sides)

    def lookup_words(self, emit: Emit, table: NDArray[np.uint16], index: Index) -> ir.Value:
        """From memory."""
        return scalar_words(emit, table, index)

    def dot(self, emit: Emit, codes: Unsigned, record: ir.Value) -> ir.Value:
        """Byte products summed in pairs as 16-bit numbers, which must not saturate."""
        sides = []
        for side in (0, 1):
            registers = [_half(emit, register, side) for register in codes.registers]
            activations = [emit.load(record, 64 * i + 32 * side, _BYTES) for i in range(4)]
            if 2 * _MOST * codes.largest > _SHORT_LIMIT:
                registers, activations = self._swapped_signs(emit, codes, registers, activations)
                largest, total = 128, emit.every(BLOCK_INTS, 0)
            else:
                start = emit.load(record, 256 + 32 * side, BLOCK_INTS) if codes.offset else None
                largest, total = codes.largest, emit.every(BLOCK_INTS, 0) if start is None else start
            sides.append(self._sum(emit, total, registers, activations, largest))
        return emit.join(sides)

    def _swapped_signs(
        self, emit: Emit, codes: Unsigned, registers: list[ir.Value], activations: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """``|w|`` and ``q`` with w's sign, whose product is ``w q``; |w| is at most 128, so pairs fit."""
        offset = emit.every(_BYTES, codes.offset)
        signed = [emit.builder.sub(register, offset) for register in registers]
        magnitudes = [emit.call("llvm.abs.v32i8", _BYTES, [w, ir.Constant(ir.IntType(1), 0)]) for w in signed]
        turned = [emit.call("llvm.x86.avx2.psign.b", _BYTES, [q, w]) for q, w in zip(activations, signed, strict=True)]
        return magnitudes, turned

    def _sum(
        self, emit: Emit, total: ir.Value, registers: list[ir.Value], activations: list[ir.Value], largest: int
    ) -> ir.Value:
        run = max(run for run in (1, 2, 4) if run * 2 * _MOST * largest <= _SHORT_LIMIT)
        pairs = [
            emit.call("llvm.x86.avx2.pmadd.ub.sw", _SHORTS, [u, q]) for u, q in zip(registers, activations, strict=True)
        ]
        for first in range(0, 4, run):
            shorts = pairs[first]
            for more in pairs[first + 1 : first + run]:
                shorts = emit.builder.add(shorts, more)
            longs = emit.call("llvm.x86.avx2.pmadd.wd", BLOCK_INTS, [shorts, emit.every(_SHORTS, 1)])
            total = emit.builder.add(total, longs)
        return total


@dataclass(frozen=True, slots=True)
class AvxVnni(Avx2):
    """AVX2 with the dot product of four bytes: client processors since Alder Lake. Attributes: see `Target`."""

    name: str = "avxvnni"

    def dot(self, emit: Emit, codes: Unsigned, record: ir.Value) -> ir.Value:
        """One instruction per half register; the offset is taken off beforehand."""
        sides = []
        for side in (0, 1):
            at = 32 * side
            total = emit.load(record, START_AT + at, BLOCK_INTS) if codes.offset else emit.every(BLOCK_INTS, 0)
            for i, register in enumerate(codes.registers):
                operands = [total, _half(emit, register, side), emit.load(record, 64 * i + at, _BYTES)]
                total = emit.call("llvm.x86.avx512.vpdpbusd.256", BLOCK_INTS, operands)
            sides.append(total)
        return emit.join(sides)
