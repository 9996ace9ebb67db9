"""Memory by its address, for compiled code: what tasks and the worker pool are made of.

Numba's arrays carry ownership, which code that outlives the call that made it cannot use. Tasks are therefore blocks of
64-bit words, and everything in them that is not a number is an address; whoever writes a task keeps what it points to.
"""

from typing import Any

import numba
from llvmlite import ir
from numba import extending, types

from strata.experts.kernels.emit import FLOAT, I8, I32, I64

# What compiled code calls has other arguments than what Python sees, so nothing is said about them.
intrinsic: Any = extending.intrinsic
carray: Any = numba.carray  # type: ignore[attr-defined]


def _at(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def peek(_context: Any, address: Any) -> Any:
    """The 64-bit word at an address."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return builder.load(_at(builder, arguments[0], I64), align=8)

    return types.int64(types.int64), codegen


@intrinsic
def poke(_context: Any, address: Any, word: Any) -> Any:
    """Write a 64-bit word."""

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], _at(builder, arguments[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def peek_float(_context: Any, address: Any) -> Any:
    """The float32 at an address."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return builder.load(_at(builder, arguments[0], FLOAT), align=4)

    return types.float32(types.int64), codegen


def _viewer(element: Any) -> Any:
    @intrinsic
    def view(_context: Any, address: Any) -> Any:
        pointer = types.CPointer(element)

        def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64), codegen

    return view


bytes_at = _viewer(types.uint8)
codes_at = _viewer(types.int8)
ints_at = _viewer(types.int32)
longs_at = _viewer(types.int64)
floats_at = _viewer(types.float32)


@intrinsic
def call(_context: Any, function: Any, task: Any, first: Any, last: Any) -> Any:
    """Call a task's function by its address: ``int64 (int64 task, int64 first, int64 last)``."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(I64, [I64, I64, I64])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def stack(_context: Any, size: Any) -> Any:
    """Address of a constant number of bytes that live until the function returns, 64-byte aligned."""
    count = size.literal_value

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, _arguments: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(I8, count))
            place.align = 64
        return builder.ptrtoint(place, I64)

    return types.int64(size), codegen


@intrinsic
def stack_of(_context: Any, size: Any) -> Any:
    """As `stack`, for a number known only when called; must not stand in a loop."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(builder.alloca(I8, size=builder.trunc(arguments[0], I32)), I64)

    return types.int64(types.int64), codegen
