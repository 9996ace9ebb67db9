"""Atomic words and the few calls into the C library that compiled threads need."""

import platform
from typing import Any

from llvmlite import ir
from numba import types

from strata.experts.kernels.emit import I32, I64
from strata.experts.kernels.memory import intrinsic

_WORD = types.int64


def _at(builder: ir.IRBuilder, address: ir.Value, kind: ir.IntType) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load(_context: Any, address: Any) -> Any:
    """The word at an address; everything written before it was stored is visible afterwards."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_at(builder, arguments[0], I64), "seq_cst", 8)

    return _WORD(_WORD), codegen


@intrinsic
def store(_context: Any, address: Any, word: Any) -> Any:
    """Write a word; everything written before is visible to whoever loads it."""

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _at(builder, arguments[0], I64), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(_WORD, _WORD), codegen


@intrinsic
def add(_context: Any, address: Any, number: Any) -> Any:
    """Add to a word; returns what it was."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _at(builder, arguments[0], I64), arguments[1], "seq_cst")

    return _WORD(_WORD, _WORD), codegen


@intrinsic
def pause(_context: Any) -> Any:
    """Tell the processor that this is a loop that waits."""

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, _arguments: Any) -> Any:
        x86 = platform.machine() in {"x86_64", "AMD64", "i686"}
        arm = platform.machine() in {"aarch64", "arm64"}
        if x86 or arm:
            name, values = ("llvm.x86.sse2.pause", []) if x86 else ("llvm.aarch64.hint", [I32(1)])
            function = builder.module.globals.get(name)
            if function is None:
                kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
                function = ir.Function(builder.module, kind, name)
            builder.call(function, values)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def system_call(_context: Any, function: Any, number: Any, a: Any, b: Any, c: Any) -> Any:
    """``syscall(number, a, b, c, 0, 0, 0)`` of the C library, by its address."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(I64, [I64], var_arg=True)
        syscall = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(syscall, [*arguments[1:], I64(0), I64(0), I64(0)])

    return _WORD(_WORD, _WORD, _WORD, _WORD, _WORD), codegen


@intrinsic
def timed_wait(_context: Any, function: Any, number: Any, word: Any, expected: Any, time: Any) -> Any:
    """Sleep until a futex rings, for at most the time at an address (two words: seconds, nanoseconds).

    ``syscall(number, word, 128, expected, time, 0, 0)``: a wait that is private to the process. Returns at once if the
    word, of which the lower half counts, is not what is expected.
    """

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(I64, [I64], var_arg=True)
        syscall = builder.inttoptr(arguments[0], kind.as_pointer())
        wait = [arguments[1], arguments[2], I64(128), arguments[3], arguments[4], I64(0), I64(0)]
        return builder.call(syscall, wait)

    return _WORD(_WORD, _WORD, _WORD, _WORD, _WORD), codegen
