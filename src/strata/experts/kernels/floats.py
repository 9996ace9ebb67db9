"""Products of F32, BF16 and F16 matrices with float32 activations, in an order that neither rows nor threads change.

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

from strata.errors import FormatError
from strata.experts.cpu import choose
from strata.experts.errors import KernelError
from strata.experts.kernels.cached import task_function
from strata.experts.kernels.emit import FLOAT, I1, I8, I16, I32, I64, Emit
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import intrinsic, peek, peek_float
from strata.experts.kernels.product import halved
from strata.experts.kernels.targets import TARGETS, Target
from strata.experts.kernels.task import INPUTS, OUTPUTS, ROWS, SCALE, STRIDE, WEIGHTS, WIDTH, run_rows
from strata.formats import BlockType
from strata.formats.block import F32, U8

_LANES = 16
_TOGETHER = 4
_SIZES = {"F32": 4, "BF16": 2, "F16": 2}
FLOAT_TYPES = frozenset(_SIZES)
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


def _as_floats(emit: Emit, values: ir.Value, type_name: str, target: Target) -> ir.Value:
    if type_name == "F32":
        return values
    if type_name == "F16":
        return emit.join([target.halves(emit, emit.pick(values, range(side, side + 8))) for side in (0, 8)])
    wide = emit.widened(values, I32)
    return emit.cast(emit.builder.shl(wide, emit.every(wide.type, 16)), _FLOATS)


@intrinsic(prefer_literal=True)
def float_rows(
    _context: Any, name: Any, count: Any, weights: Any, stride: Any, x: Any, width: Any, out: Any, scale: Any
) -> Any:
    """``count`` rows of weights, ``stride`` bytes apart, times a row of activations and the scale: ``count`` floats."""
    _, type_name, target_name = name.literal_value.split("/")
    target = TARGETS[target_name]
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
                weights = load(builder.gep(row, [builder.mul(k, I64(size))]), element)
                w = _as_floats(emit, weights, type_name, target)
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
            rounded = builder.fptrunc(halved(emit, builder.load(total)), FLOAT)
            emit.store(builder.fmul(rounded, arguments[7]), out_at, 4 * r)
        return context.get_dummy_value()

    return types.void(name, count, weights, stride, x, width, out, scale), codegen


@cache
def float_kernel(type_name: str, path: str | None = None) -> Any:
    """The function of a float type's matrix tasks; see `strata.experts.kernels.task`. Inputs are float32 rows."""
    name = f"{fingerprint()}/{type_name}/{choose(path)}"
    together = _TOGETHER

    def run(task, first, last):  # noqa: ANN001, ANN202  # compiled
        base, stride, width = peek(task + WEIGHTS), peek(task + STRIDE), peek(task + WIDTH)
        count, inputs, outputs = peek(task + ROWS), peek(task + INPUTS), peek(task + OUTPUTS)
        scale = peek_float(peek(task + SCALE))
        whole = first + (last - first) // together * together
        for n in range(first, whole, together):
            at = base + n * stride
            for t in range(count):
                x, to = peek(inputs + 8 * t), peek(outputs + 8 * t) + 4 * n
                float_rows(name, together, at, stride, x, width, to, scale)
        for n in range(whole, last):
            at = base + n * stride
            for t in range(count):
                x, to = peek(inputs + 8 * t), peek(outputs + 8 * t) + 4 * n
                float_rows(name, 1, at, stride, x, width, to, scale)
        return 0

    return task_function(run)


def float_product(block_type: BlockType, raw: U8, x: F32, out: F32 | None = None, *, path: str | None = None) -> F32:
    """Float matrix times float activations: `strata.experts.judge.float_product`'s bytes.

    Args:
        block_type: F32, BF16 or F16.
        raw: ``uint8 [N, row_bytes]``; may be a read-only memory map.
        x: ``float32 [T, K]``.
        out: where to write, ``float32 [T, N]``.
        path: as for `strata.experts.kernels.kernel`.

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
    rows = np.ascontiguousarray(x)
    code = float_kernel(block_type.name, path)
    run_rows(code, np.ascontiguousarray(raw), x.shape[1], rows, out, (0, len(raw)))
    return out
