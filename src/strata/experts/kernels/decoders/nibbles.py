"""Types with 16 bytes of nibbles per block: IQ4_NL, IQ4_XS, MXFP4, Q4_1, Q5_1; and NVFP4, with 8 per half block."""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.emit import BLOCK_FLOATS, BLOCK_INTS, BYTES, I8, I16, I32, LANES, Emit
from strata.experts.kernels.order import HALF_NIBBLES, NIBBLES
from strata.experts.kernels.targets.target import Target
from strata.formats.families.iq4 import LEVELS as IQ4_LEVELS
from strata.formats.families.microscaling import LEVELS as E2M1_LEVELS

_SHORTS8 = ir.VectorType(I16, 8)
_IQ4_OFFSET, _E2M1_OFFSET = 127, 12
_IQ4 = [int(level) + _IQ4_OFFSET for level in IQ4_LEVELS]
_E2M1 = [int(level) + _E2M1_OFFSET for level in E2M1_LEVELS]


def _split(emit: Emit, packed: Sequence[ir.Value]) -> list[ir.Value]:
    """Low and high nibbles of every register in turn."""
    split = []
    for register in packed:
        split += [emit.low_bits(register, 4), emit.low_bits(emit.byte_shift(register, 4), 4)]
    return split


def _alternate(emit: Emit, a: ir.Value, b: ir.Value, starts: Sequence[int]) -> list[ir.Value]:
    """Long words 0 and 2 of every 16 bytes in one register, 1 and 3 in another."""
    places = [start + step for start in starts for step in (0, 2)]
    return [
        emit.cast(emit.shuffle(emit.cast(a, LANES), emit.cast(b, LANES), [p + odd for p in places]), BYTES)
        for odd in (0, 1)
    ]


def _strided(emit: Emit, raw: ir.Value, stride: int, at: int) -> list[ir.Value]:
    """The nibbles of eight blocks that lie ``stride`` bytes apart, in order `NIBBLES`."""
    loads = [emit.load(raw, stride * b + at, ir.VectorType(I8, 16)) for b in range(8)]
    # Even blocks in one register and odd ones in the other: the words then never leave their 128 bits.
    starts = [16 * (b % 2) + 4 * (b // 2) for b in range(8)]
    return _split(emit, _alternate(emit, emit.join(loads[::2]), emit.join(loads[1::2]), starts))


def _shorts(emit: Emit, raw: ir.Value, stride: int, at: int) -> ir.Value:
    return emit.gather(I16, [emit.load(raw, stride * b + at, I16) for b in range(8)])


def _iq4_nl(emit: Emit, target: Target, raw: ir.Value) -> Group:
    codes = _strided(emit, raw, 18, 2)
    unit = target.halves(emit, _shorts(emit, raw, 18, 0))
    return Group(tuple(target.levels(emit, _IQ4, code) for code in codes), (unit,))


def _iq4_xs(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    packed = _alternate(emit, emit.load(raw, 8, BYTES), emit.load(raw, 72, BYTES), range(0, 32, 4))
    low = emit.spread(emit.load(raw, 4, I32), BLOCK_INTS)
    high = emit.spread(builder.zext(emit.load(raw, 2, I16), I32), BLOCK_INTS)
    nibble = emit.low_bits(builder.lshr(low, emit.constant(I32, range(0, 32, 4))), 4)
    top = emit.low_bits(builder.lshr(high, emit.constant(I32, range(0, 16, 2))), 2)
    scale = builder.or_(nibble, builder.shl(top, emit.every(BLOCK_INTS, 4)))
    scale = emit.floats(builder.sub(scale, emit.every(BLOCK_INTS, 32)))
    d = target.halves(emit, emit.spread(emit.load(raw, 0, I16), _SHORTS8))
    registers = tuple(target.levels(emit, _IQ4, code) for code in _split(emit, packed))
    return Group(registers, (builder.fmul(d, scale),))


def _mxfp4(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    exponents = emit.gather(I8, [emit.load(raw, 17 * b, I8) for b in range(8)])
    e = emit.widened(exponents, I32)
    # 2^(e - 128): the two smallest are subnormal, 1 and 2 times 2^-128.
    normal = builder.shl(builder.sub(e, emit.every(BLOCK_INTS, 1)), emit.every(BLOCK_INTS, 23))
    small = builder.shl(emit.every(BLOCK_INTS, 1 << 21), emit.low_bits(e, 1))
    bits = builder.select(builder.icmp_unsigned(">", e, emit.every(BLOCK_INTS, 1)), normal, small)
    codes = _strided(emit, raw, 17, 1)
    return Group(tuple(target.levels(emit, _E2M1, code) for code in codes), (emit.cast(bits, BLOCK_FLOATS),))


def _nvfp4(emit: Emit, target: Target, raw: ir.Value) -> Group:
    blocks = [emit.load(raw, 36 * b + 4, ir.VectorType(I8, 32)) for b in range(4)]
    sides = [emit.cast(emit.join(blocks[i : i + 2]), LANES) for i in (0, 2)]
    packed = [emit.cast(emit.shuffle(sides[0], sides[1], range(word, 32, 2)), BYTES) for word in (0, 1)]
    scales = emit.cast(emit.gather(I32, [emit.load(raw, 36 * b, I32) for b in range(4)]), ir.VectorType(I8, 16))
    units = tuple(_ue4m3(emit, target, emit.pick(scales, range(half, 16, 2))) for half in (0, 1))
    return Group(tuple(target.levels(emit, _E2M1, code) for code in _split(emit, packed)), units)


def _ue4m3(emit: Emit, target: Target, scales: ir.Value) -> ir.Value:
    """E4M3 without sign, halved: ``<8 x i8> -> <8 x float>``.

    As float16 bits the number is 2^-8 of its value, subnormal ones included; exact. (Going through float32 bits in the
    same way meets float32's subnormal numbers, which cost a processor dearly: measured at half the speed.)
    """
    builder = emit.builder
    wide = emit.widened(scales, I16)
    bits = builder.shl(emit.low_bits(wide, 7), emit.every(_SHORTS8, 7))
    nothing = builder.icmp_unsigned("==", wide, emit.every(_SHORTS8, 0x7F))
    bits = builder.select(nothing, emit.every(_SHORTS8, 0), bits)
    return builder.fmul(target.halves(emit, bits), emit.every(BLOCK_FLOATS, 2.0**7))


def _q4_1(emit: Emit, target: Target, raw: ir.Value) -> Group:
    d, m = (target.halves(emit, _shorts(emit, raw, 20, at)) for at in (0, 2))
    return Group(tuple(_strided(emit, raw, 20, 4)), (d,), minimum=m)


def _q5_1(emit: Emit, target: Target, raw: ir.Value) -> Group:
    d, m = (target.halves(emit, _shorts(emit, raw, 24, at)) for at in (0, 2))
    words = emit.gather(I32, [emit.load(raw, 24 * b + 4, I32) for b in range(8)])
    high = emit.cast(words, ir.VectorType(I8, 32))
    registers = []
    for low, numbers in zip(_strided(emit, raw, 24, 8), NIBBLES.astype(np.int64), strict=True):
        fifth = emit.builder.select(emit.bits(high, numbers), emit.every(BYTES, 16), emit.every(BYTES, 0))
        registers.append(emit.builder.or_(low, fifth))
    return Group(tuple(registers), (d,), minimum=m)


IQ4_NL = Decoder("IQ4_NL", _IQ4_OFFSET, max(_IQ4), lambda _: NIBBLES, _iq4_nl)
IQ4_XS = Decoder("IQ4_XS", _IQ4_OFFSET, max(_IQ4), lambda _: NIBBLES, _iq4_xs)
MXFP4 = Decoder("MXFP4", _E2M1_OFFSET, max(_E2M1), lambda _: NIBBLES, _mxfp4)
NVFP4 = Decoder("NVFP4", _E2M1_OFFSET, max(_E2M1), lambda _: HALF_NIBBLES, _nvfp4)
Q4_1 = Decoder("Q4_1", 0, 15, lambda _: NIBBLES, _q4_1)
Q5_1 = Decoder("Q5_1", 0, 31, lambda _: NIBBLES, _q5_1)
