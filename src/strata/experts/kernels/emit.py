"""Writing LLVM IR for vectors: the few operations that decoders are made of.

Everything here is portable IR that LLVM lowers for any processor; what needs an instruction by name is in `targets`.
Floating point is written without fast-math flags, and LLVM contracts nothing without them, so every operation is one
IEEE rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import ArrayLike, NDArray

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT = ir.HalfType(), ir.FloatType()
BYTES, WORDS16, LANES = ir.VectorType(I8, 64), ir.VectorType(I16, 32), ir.VectorType(I32, 16)
BLOCK_INTS, BLOCK_FLOATS = ir.VectorType(I32, 8), ir.VectorType(FLOAT, 8)


@dataclass(frozen=True, slots=True)
class Emit:
    """A builder, and short names for what is done with it."""

    builder: ir.IRBuilder

    def load(self, at: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        """A value of any alignment, ``offset`` bytes behind the pointer."""
        address = self.builder.gep(at, [I64(offset)])
        return self.builder.load(self.builder.bitcast(address, kind.as_pointer()), align=1)

    def store(self, value: ir.Value, at: ir.Value, offset: int = 0) -> None:
        """Write a value of any alignment."""
        address = self.builder.gep(at, [I64(offset)])
        self.builder.store(value, self.builder.bitcast(address, value.type.as_pointer()), align=1)

    def constant(self, element: ir.Type, values: ArrayLike) -> ir.Constant:
        """A vector of constants."""
        numbers = np.asarray(values).reshape(-1)
        return ir.Constant(ir.VectorType(element, len(numbers)), [element(v.item()) for v in numbers])

    def every(self, kind: ir.VectorType, value: float) -> ir.Constant:
        """The same number in every element."""
        return ir.Constant(kind, [kind.element(value)] * kind.count)

    def spread(self, scalar: ir.Value, kind: ir.VectorType) -> ir.Value:
        """A scalar in every element."""
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.shuffle(first, first, [0] * kind.count)

    def shuffle(self, a: ir.Value, b: ir.Value, places: ArrayLike) -> ir.Value:
        """Elements of ``a`` and, counted on, of ``b``."""
        return self.builder.shuffle_vector(a, b, self.constant(I32, places))

    def pick(self, a: ir.Value, places: ArrayLike) -> ir.Value:
        """Elements of one vector."""
        return self.shuffle(a, a, places)

    def join(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Vectors one after another; their number is a power of two."""
        joined = list(parts)
        while len(joined) > 1:
            width = joined[0].type.count
            pairs = zip(joined[::2], joined[1::2], strict=True)
            joined = [self.shuffle(a, b, range(2 * width)) for a, b in pairs]
        return joined[0]

    def gather(self, element: ir.Type, scalars: Sequence[ir.Value]) -> ir.Value:
        """A vector from scalars."""
        vector: ir.Value = ir.Constant(ir.VectorType(element, len(scalars)), ir.Undefined)
        for i, scalar in enumerate(scalars):
            vector = self.builder.insert_element(vector, scalar, I32(i))
        return vector

    def cast(self, value: ir.Value, kind: ir.VectorType) -> ir.Value:
        """The same bits."""
        return self.builder.bitcast(value, kind)

    def low_bits(self, value: ir.Value, bits: int) -> ir.Value:
        """Every byte's lowest bits, for a vector of bytes."""
        return self.builder.and_(value, self.every(value.type, (1 << bits) - 1))

    def byte_shift(self, value: ir.Value, bits: int) -> ir.Value:
        """Bytes shifted right; bits of the byte above come in at the top and must be masked away."""
        if not bits:
            return value
        wide = self.cast(value, ir.VectorType(I32, value.type.count // 4))
        return self.cast(self.builder.lshr(wide, self.every(wide.type, bits)), value.type)

    def widened(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Unsigned integers, zero-extended."""
        return self.builder.zext(value, ir.VectorType(element, value.type.count))

    def floats(self, integers: ir.Value) -> ir.Value:
        """Signed 32-bit integers as float32."""
        return self.builder.sitofp(integers, ir.VectorType(FLOAT, integers.type.count))

    def table(self, element: ir.Type, values: NDArray[np.integer]) -> ir.Value:
        """A constant array in the kernel's own module, as a byte pointer."""
        module = self.builder.module
        kind = ir.ArrayType(element, values.size)
        name = module.get_unique_name("table")
        variable = ir.GlobalVariable(module, kind, name=name)
        variable.linkage, variable.global_constant, variable.align = "private", True, 64
        variable.initializer = ir.Constant(kind, [element(v.item()) for v in values.reshape(-1)])
        return self.builder.bitcast(variable, I8.as_pointer())

    def call(self, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        """An LLVM intrinsic by its full name."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.builder.call(function, arguments)

    def prefetch(self, at: ir.Value) -> None:
        """Bring the cache line of an address into all caches, if there is one."""
        module = self.builder.module
        name = "llvm.prefetch.p0"
        function = module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
            function = ir.Function(module, signature, name)
        self.builder.call(function, [at, I32(0), I32(3), I32(1)])

    def bits(self, packed: ir.Value, numbers: NDArray[np.integer]) -> ir.Value:
        """Single bits out of a vector of bytes, one per element of the result: ``<n x i1>``.

        Args:
            packed: bytes.
            numbers: which bit goes where; bit ``n`` is bit ``n % 8`` of byte ``n // 8``.
        """
        flat = np.asarray(numbers).reshape(-1)
        chosen = self.pick(packed, flat >> 3)
        masked = self.builder.and_(chosen, self.constant(I8, 1 << (flat & 7)))
        return self.builder.icmp_unsigned("!=", masked, self.every(masked.type, 0))
