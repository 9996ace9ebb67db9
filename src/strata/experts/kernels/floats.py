"""Products of F32 and BF16 matrices with float32 activations, in an order that neither rows nor threads change.

A BLAS product's order of additions depends on how many rows it gets, on the processor and on the number of threads.
Here it is the quantised products' order with a weight in place of a block: 16 lanes over K, then a halving tree. The
lanes are float64, in which the product of two float32 is exact; the sum is rounded to float32 once, at the end. So the
order costs no accuracy against BLAS: an output is the float64 sum's nearest float32 but for one case in some thousands.

Bytes moved: four rows of weights at a time go through the first- or second-level cache and meet every row of
activations there, so memory is read once whatever T. Four rows are four independent chains of additions, which hides
their latency.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strata.errors import FormatError
from strata.experts.errors import KernelError
from strata.experts.kernels.cached import compiled
from strata.experts.kernels.emit import FLOAT, I1, I8, I16, I32, I64, Emit
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.product import halved
from strata.formats import BlockType
from strata.formats.block import F32, U8

_LANES = 16
_TOGETHER = 4
_SIZES = {"F32": 4, "BF16": 2}
_FLOATS = ir.VectorType(FLOAT, _LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), _LANES)
_MASK = ir.VectorType(I1, _LANES)


def _masked(emit: Emit, at: ir.Value, element: ir.Type, mask: ir.Value) -> ir.Value:
    """16 elements, zero where the mask is not set; nothing behind the mask is touched."""
    kind = ir.VectorType(element, _LANES)
    pointer = emit.builder.bitcast(at, kind.as_pointer())
    function = emit.builder.module.globals.get(name := f"llvm.masked.load.v16{element.intrinsic_name}.p0")
    if function is None:
        signature = ir.FunctionType(kind, [kind.as_pointer(), I32, _MASK, kind])
        function = ir.Function(emit.builder.module, signature, name)
    return emit.builder.call(function, [pointer, I32(1), mask, emit.every(kind, 0)])


def _as_floats(emit: Emit, values: ir.Value) -> ir.Value:
    if values.type.element == FLOAT:
        return values
    wide = emit.widened(values, I32)
    return emit.cast(emit.builder.shl(wide, emit.every(wide.type, 16)), _FLOATS)


@intrinsic(prefer_literal=True)
def float_rows(_context: Any, name: Any, count: Any, weights: Any, stride: Any, x: Any, width: Any, out: Any) -> Any:
    """``count`` rows of weights, ``stride`` bytes apart, times one row of activations; writes ``count`` floats."""
    _, type_name = name.literal_value.split("/")
    element, size, together = FLOAT if type_name == "F32" else I16, _SIZES[type_name], count.literal_value

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        emit = Emit(builder)
        first, x_at, out_at = (builder.inttoptr(arguments[i], I8.as_pointer()) for i in (2, 4, 6))
        rows = [builder.gep(first, [builder.mul(arguments[3], I64(r))]) for r in range(together)]
        with builder.goto_entry_block():
            lanes = [builder.alloca(_DOUBLES) for _ in rows]
        for total in lanes:
            builder.store(emit.every(_DOUBLES, 0.0), total)

        def step(k: ir.Value, load: Any) -> None:
            activations = builder.fpext(load(builder.gep(x_at, [builder.mul(k, I64(4))]), FLOAT), _DOUBLES)
            for row, total in zip(rows, lanes, strict=True):
                w = _as_floats(emit, load(builder.gep(row, [builder.mul(k, I64(size))]), element))
                product = builder.fmul(builder.fpext(w, _DOUBLES), activations)
                builder.store(builder.fadd(builder.load(total), product), total)

        steps = builder.udiv(arguments[5], I64(_LANES))
        with cgutils.for_range(builder, steps) as loop:
            at = builder.mul(loop.index, I64(_LANES))
            step(at, lambda pointer, kind: emit.load(pointer, 0, ir.VectorType(kind, _LANES)))
        done = builder.mul(steps, I64(_LANES))
        left = builder.trunc(builder.sub(arguments[5], done), I32)
        with builder.if_then(builder.icmp_signed(">", left, I32(0))):
            numbers = emit.constant(I32, range(_LANES))
            mask = builder.icmp_signed("<", numbers, emit.spread(left, numbers.type))
            step(done, lambda pointer, kind: _masked(emit, pointer, kind, mask))
        for r, total in enumerate(lanes):
            emit.store(builder.fptrunc(halved(emit, builder.load(total)), FLOAT), out_at, 4 * r)
        return context.get_dummy_value()

    return types.void(name, count, weights, stride, x, width, out), codegen


@cache
def float_kernel(type_name: str) -> Any:
    """``run(raw, x, out, first, last)``: outputs ``first`` to ``last``, without checks and the interpreter lock."""
    name = f"{fingerprint()}/{type_name}"
    together = _TOGETHER

    def run(raw, x, out, first, last):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
        row_bytes, width = raw.shape[1], x.shape[1]
        base, start, to = np.intp(raw.ctypes.data), np.intp(x.ctypes.data), np.intp(out.ctypes.data)
        whole = first + (last - first) // together * together
        for n in range(first, whole, together):
            for t in range(len(x)):
                at, activations, results = base + n * row_bytes, start + 4 * t * width, to + 4 * (t * len(raw) + n)
                float_rows(name, together, at, row_bytes, activations, width, results)  # type: ignore[call-arg]
        for n in range(whole, last):
            for t in range(len(x)):
                at, activations, results = base + n * row_bytes, start + 4 * t * width, to + 4 * (t * len(raw) + n)
                float_rows(name, 1, at, row_bytes, activations, width, results)  # type: ignore[call-arg]

    matrix = "Array(uint8, 2, 'C', readonly=True)"
    return compiled(run, f"void({matrix}, float32[:,::1], float32[:,::1], intp, intp)")


def float_product(block_type: BlockType, raw: U8, x: F32, out: F32 | None = None) -> F32:
    """Float matrix times float activations: `strata.experts.judge.float_product`'s bytes.

    Args:
        block_type: F32 or BF16.
        raw: ``uint8 [N, row_bytes]``; may be a read-only memory map.
        x: ``float32 [T, K]``.
        out: where to write, ``float32 [T, N]``.

    Raises:
        FormatError: for another type.
        KernelError: if the operands do not fit together.
    """
    if block_type.name not in _SIZES:
        raise FormatError(f"no float kernel reads {block_type.name}; there are kernels for {', '.join(_SIZES)}")
    if raw.ndim != 2 or raw.dtype != np.uint8 or x.ndim != 2 or x.dtype != np.float32 or not x.size:
        raise KernelError(f"operands are uint8 [N, bytes] and float32 [T, K], not {raw.dtype} {list(raw.shape)}")
    if raw.shape[1] != x.shape[1] * block_type.bytes:
        raise KernelError(f"{block_type.name} rows of {raw.shape[1]} bytes do not go with activations {list(x.shape)}")
    shape = (len(x), len(raw))
    if out is None:
        out = np.empty(shape, dtype=np.float32)
    elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise KernelError(f"the output is contiguous float32 {list(shape)}, not {out.dtype} {list(out.shape)}")
    float_kernel(block_type.name)(np.ascontiguousarray(raw), np.ascontiguousarray(x), out, 0, len(raw))
    return out
