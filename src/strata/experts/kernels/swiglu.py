"""SwiGLU and the weighted sum of experts, compiled: `strata.experts.judge`'s bytes."""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from strata.experts.errors import KernelError
from strata.experts.kernels.cached import compiled
from strata.formats.block import F32

_MAGIC = np.float32(12582912.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504088896341), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ONE, _LOW, _HIGH = np.float32(1), np.float32(-87), np.float32(88)


@intrinsic
def _power(_context: Any, exponent: Any) -> Any:
    """2^n from its bits, for n in -126..127: ``int32 -> float32``."""

    def codegen(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        bits = builder.shl(builder.add(arguments[0], word(127)), word(23))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(exponent), codegen


@njit
def exponential(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  # compiled: float32 -> float32
    """The exponential of docs/numerics.md, of IEEE operations alone; never for NaN, which the clamp may swallow."""
    x = min(max(x, _LOW), _HIGH)
    n = (x * _LOG2_E + _MAGIC) - _MAGIC
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
    return ((p * (r * r) + r) + _ONE) * _power(np.int32(n))  # type: ignore[call-arg]


def _swiglu(gate, up, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    for t in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            g = gate[t, i]
            out[t, i] = (g / (_ONE + exponential(-g))) * up[t, i]


def _combine(rows, weights, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    for t in range(rows.shape[0]):
        for i in range(rows.shape[2]):
            out[t, i] = np.float32(0)
        for j in range(rows.shape[1]):
            for i in range(rows.shape[2]):
                out[t, i] = out[t, i] + weights[t, j] * rows[t, j, i]


@cache
def swiglu_kernel() -> Any:
    """``run(gate, up, out)``, all ``float32 [T, I]``; ``out`` may be one of the others."""
    return compiled(_swiglu, "void(float32[:,::1], float32[:,::1], float32[:,::1])")


@cache
def combine_kernel() -> Any:
    """``run(rows, weights, out)``: ``float32 [T, k, H]``, ``[T, k]``, ``[T, H]``."""
    return compiled(_combine, "void(float32[:,:,::1], float32[:,::1], float32[:,::1])")


def swiglu(gate: F32, up: F32) -> F32:
    """``silu(gate) * up``: ``float32 [T, I]``."""
    if gate.shape != up.shape or gate.ndim != 2:
        raise KernelError(f"gate and up have one shape [T, I], not {list(gate.shape)} and {list(up.shape)}")
    out = np.empty(gate.shape, dtype=np.float32)
    swiglu_kernel()(np.ascontiguousarray(gate), np.ascontiguousarray(up), out)
    return out


def combine(rows: F32, weights: F32) -> F32:
    """Weighted sum of experts' rows in the order given; see `strata.experts.judge.combine`."""
    if rows.ndim != 3 or rows.shape[:2] != weights.shape:
        raise KernelError(f"rows are [T, k, H] and weights [T, k], not {list(rows.shape)} and {list(weights.shape)}")
    out = np.empty((rows.shape[0], rows.shape[2]), dtype=np.float32)
    combine_kernel()(np.ascontiguousarray(rows), np.ascontiguousarray(weights), out)
    return out
