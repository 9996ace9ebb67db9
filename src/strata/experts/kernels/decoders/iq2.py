"""IQ2_XS and IQ2_S: codewords of eight magnitudes, signs, a scale per half block."""

from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.decoders.grids import digits, nibble_steps, packed_eights, signed, with_parity
from strata.experts.kernels.emit import BLOCK_FLOATS, I8, I16, WORDS16, Emit
from strata.experts.kernels.order import PLANES
from strata.experts.kernels.targets.target import Index, Target

_LEVELS = (8, 25, 43)
_OFFSET = 43
_BYTES32 = ir.VectorType(I8, 32)


def _group(emit: Emit, target: Target, raw: ir.Value, name: str, index: Index, signs: ir.Value, steps_at: int) -> Group:
    words = target.lookup_words(emit, packed_eights(name), index)
    magnitudes = [target.levels(emit, _LEVELS, digit) for digit in digits(emit, words, 0)]
    d = target.halves(emit, emit.spread(emit.load(raw, 0, I16), ir.VectorType(I16, 8)))
    unit = emit.builder.fmul(d, emit.every(BLOCK_FLOATS, 0.125))
    registers = signed(emit, magnitudes, signs, PLANES, _OFFSET)
    return Group(tuple(registers), (unit,), nibble_steps(emit, raw, steps_at, 16))


def _xs(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    words = emit.load(raw, 2, WORDS16)
    sevens = builder.lshr(words, emit.every(WORDS16, 9))
    signs = builder.trunc(with_parity(emit, sevens), _BYTES32)
    scalars = tuple(builder.and_(emit.load(raw, 2 + 2 * i, I16), I16(511)) for i in range(32))
    index = Index(builder.and_(words, emit.every(WORDS16, 511)), scalars)
    return _group(emit, target, raw, "IQ2_XS", index, signs, 66)


def _s(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    top = emit.pick(emit.load(raw, 66, ir.VectorType(I8, 8)), [i // 4 for i in range(32)])
    shifts = emit.constant(I16, [2 * (i % 4) for i in range(32)])
    high = emit.low_bits(builder.lshr(emit.widened(top, I16), shifts), 2)
    low = emit.widened(emit.load(raw, 2, _BYTES32), I16)
    index = builder.or_(low, builder.shl(high, emit.every(WORDS16, 8)))
    return _group(emit, target, raw, "IQ2_S", Index(index), emit.load(raw, 34, _BYTES32), 74)


IQ2_XS = Decoder("IQ2_XS", _OFFSET, 2 * _OFFSET, lambda _: PLANES, _xs)
IQ2_S = Decoder("IQ2_S", _OFFSET, 2 * _OFFSET, lambda _: PLANES, _s)
