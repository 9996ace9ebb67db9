"""IQ1_M: codewords of eight out of -1, 0, 1, moved by an eighth; here eight times that, plus nine."""

from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.decoders.grids import digits, odd, packed_eights
from strata.experts.kernels.emit import BLOCK_FLOATS, BYTES, I8, I16, I32, I64, WORDS16, Emit
from strata.experts.kernels.order import PLANES
from strata.experts.kernels.targets.target import Index, Target

_OFFSET = 9


def _decode(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    pairs = emit.pick(emit.load(raw, 32, ir.VectorType(I8, 16)), [i // 2 for i in range(32)])
    nibbles = builder.lshr(emit.widened(pairs, I16), emit.constant(I16, [4 * (i % 2) for i in range(32)]))
    top = builder.shl(emit.low_bits(nibbles, 3), emit.every(WORDS16, 8))
    index = builder.or_(emit.widened(emit.load(raw, 0, ir.VectorType(I8, 32)), I16), top)
    # 8 (digit - 1) + delta + 9 with delta 1 or -1 is 8 digit + 2 or 0, for both bytes of a word.
    down = builder.icmp_unsigned("!=", builder.and_(nibbles, emit.every(WORDS16, 8)), emit.every(WORDS16, 0))
    moved = emit.cast(builder.select(down, emit.every(WORDS16, 0), emit.every(WORDS16, 0x0202)), BYTES)
    words = target.lookup_words(emit, packed_eights("IQ1"), Index(index))
    registers = tuple(builder.add(digit, moved) for digit in digits(emit, words, 3))

    scales = emit.load(raw, 48, ir.VectorType(I16, 4))
    wide = emit.widened(emit.pick(scales, [i // 4 for i in range(16)]), I32)
    step = odd(emit, emit.low_bits(builder.lshr(wide, emit.constant(I32, [3 * (i % 4) for i in range(16)])), 3))
    d = target.halves(emit, emit.spread(_super_scale(emit, raw), ir.VectorType(I16, 8)))
    return Group(registers, (builder.fmul(d, emit.every(BLOCK_FLOATS, 0.125)),), step)


def _super_scale(emit: Emit, raw: ir.Value) -> ir.Value:
    """The float16 d from the top four bits of four words, lowest first: ``i16``."""
    builder = emit.builder
    words = emit.load(raw, 48, I64)
    d: ir.Value = I64(0)
    for i in range(4):
        d = builder.or_(d, builder.and_(builder.lshr(words, I64(12 * (i + 1))), I64(15 << (4 * i))))
    return builder.trunc(d, I16)


IQ1_M = Decoder("IQ1_M", _OFFSET, 8 * 2 + 2, lambda _: PLANES, _decode)
