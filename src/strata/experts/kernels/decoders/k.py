"""Q4_K, Q5_K and Q6_K: super-blocks of 256 whose bits lie in planes, so that lanes take different bits of a word."""

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.emit import BYTES, I8, I16, I32, I64, LANES, Emit
from strata.experts.kernels.order import WORDS
from strata.experts.kernels.targets.target import Target

_LANE = np.arange(16)
_BLOCK, _SUB = _LANE // 2, _LANE % 2
_SHORTS8 = ir.VectorType(I16, 8)


def _every_byte(byte: int) -> int:
    return byte * 0x01010101


def _low(emit: Emit, raw: ir.Value, at: int, places: NDArray[np.int64], shifts: NDArray[np.int64]) -> ir.Value:
    """A nibble of every byte of 16 words chosen out of 128 bytes: ``<16 x i32>``."""
    chosen = emit.shuffle(emit.load(raw, at, LANES), emit.load(raw, at + 64, LANES), places)
    moved = emit.builder.lshr(chosen, emit.constant(I32, shifts))
    return emit.builder.and_(moved, emit.every(LANES, _every_byte(15)))


def _high(emit: Emit, words: ir.Value, places: NDArray[np.int64], shifts: NDArray[np.int64], mask: int) -> ir.Value:
    """Bits of every byte of 16 words, turned left into the place that ``mask`` keeps: ``<16 x i32>``."""
    chosen = emit.pick(words, places)
    turned = emit.call("llvm.fshl.v16i32", LANES, [chosen, chosen, emit.constant(I32, shifts % 32)])
    return emit.builder.and_(turned, emit.every(LANES, _every_byte(mask)))


def _scales(emit: Emit, target: Target, raw: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``d * scale`` and ``-dmin * minimum`` of eight blocks: ``<8 x float>`` each."""
    builder = emit.builder
    first, second, low = (emit.load(raw, at, I32) for at in (4, 8, 12))
    found: list[ir.Value] = []
    for six, nibbles in ((first, low), (second, builder.lshr(low, I32(4)))):
        lower = builder.and_(six, I32(_every_byte(63)))
        top = builder.and_(builder.lshr(six, I32(2)), I32(_every_byte(0x30)))
        upper = builder.or_(builder.and_(nibbles, I32(_every_byte(15))), top)
        both = builder.or_(builder.zext(lower, I64), builder.shl(builder.zext(upper, I64), I64(32)))
        numbers = emit.floats(emit.widened(builder.bitcast(both, ir.VectorType(I8, 8)), I32))
        at = 2 * len(found)
        unit = target.halves(emit, emit.spread(emit.load(raw, at, I16), _SHORTS8))
        found.append(builder.fmul(unit, numbers))
    return found[0], builder.fneg(found[1])


def _q4_k(emit: Emit, target: Target, raw: ir.Value) -> Group:
    unit, minimum = _scales(emit, target, raw)
    registers = tuple(
        emit.cast(_low(emit, raw, 16, 8 * (_BLOCK // 2) + 4 * _SUB + i, 4 * (_BLOCK % 2)), BYTES) for i in range(4)
    )
    return Group(registers, (unit,), minimum=minimum)


def _q5_k(emit: Emit, target: Target, raw: ir.Value) -> Group:
    unit, minimum = _scales(emit, target, raw)
    fifths = emit.load(raw, 16, ir.VectorType(I32, 8))
    registers = []
    for i in range(4):
        low = _low(emit, raw, 48, 8 * (_BLOCK // 2) + 4 * _SUB + i, 4 * (_BLOCK % 2))
        high = _high(emit, fifths, 4 * _SUB + i, 4 - _BLOCK, 0x10)
        registers.append(emit.cast(emit.builder.or_(low, high), BYTES))
    return Group(tuple(registers), (unit,), minimum=minimum)


def _q6_k(emit: Emit, target: Target, raw: ir.Value) -> Group:
    side, plane = _BLOCK // 4, _BLOCK % 4
    tops = emit.load(raw, 128, LANES)
    registers = []
    for i in range(4):
        low = _low(emit, raw, 0, 16 * side + 8 * (plane % 2) + 4 * _SUB + i, 4 * (plane // 2))
        high = _high(emit, tops, 8 * side + 4 * _SUB + i, 4 - 2 * plane, 0x30)
        registers.append(emit.cast(emit.builder.or_(low, high), BYTES))
    step = emit.builder.sext(emit.load(raw, 192, ir.VectorType(I8, 16)), LANES)
    unit = target.halves(emit, emit.spread(emit.load(raw, 208, I16), _SHORTS8))
    return Group(tuple(registers), (unit,), step)


Q4_K = Decoder("Q4_K", 0, 15, lambda _: WORDS, _q4_k)
Q5_K = Decoder("Q5_K", 0, 31, lambda _: WORDS, _q5_k)
Q6_K = Decoder("Q6_K", 32, 63, lambda _: WORDS, _q6_k)
