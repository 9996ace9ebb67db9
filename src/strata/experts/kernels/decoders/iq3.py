"""IQ3_XXS and IQ3_S: codewords of four weights, a scale per block."""

from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.decoders.grids import fours, nibble_steps, odd, order_of_fours, signed, with_parity
from strata.experts.kernels.emit import BLOCK_FLOATS, BLOCK_INTS, I8, I16, I32, Emit
from strata.experts.kernels.targets.target import Target

_XXS_OFFSET, _S_OFFSET = 62, 15  # the largest magnitude of each grid
_SIGN_BYTES = ir.VectorType(I8, 32)
_SHORTS8 = ir.VectorType(I16, 8)


def _xxs(emit: Emit, target: Target, raw: ir.Value) -> Group:
    builder = emit.builder
    magnitudes = fours(emit, target, "IQ3_XXS", raw)
    words = emit.load(raw, 66, BLOCK_INTS)
    sevens: ir.Value = emit.every(BLOCK_INTS, 0)
    for byte in range(4):  # seven bits each, moved to the low end of a byte
        mask = 127 << (8 * byte)
        moved = builder.shl(words, emit.every(BLOCK_INTS, byte))
        sevens = builder.or_(sevens, builder.and_(moved, emit.every(BLOCK_INTS, mask)))
    signs = emit.cast(with_parity(emit, sevens), _SIGN_BYTES)
    scale = emit.floats(odd(emit, builder.lshr(words, emit.constant(I32, [28] * 8))))
    quarter = builder.fmul(_d(emit, target, raw), emit.every(BLOCK_FLOATS, 0.25))
    registers = signed(emit, magnitudes, signs, order_of_fours(target), _XXS_OFFSET)
    return Group(tuple(registers), (builder.fmul(quarter, scale),))


def _s(emit: Emit, target: Target, raw: ir.Value) -> Group:
    magnitudes = fours(emit, target, "IQ3_S", raw, 66)
    registers = signed(emit, magnitudes, emit.load(raw, 74, _SIGN_BYTES), order_of_fours(target), _S_OFFSET)
    scale = emit.floats(nibble_steps(emit, raw, 106, 8))
    return Group(tuple(registers), (emit.builder.fmul(_d(emit, target, raw), scale),))


def _d(emit: Emit, target: Target, raw: ir.Value) -> ir.Value:
    return target.halves(emit, emit.spread(emit.load(raw, 0, I16), _SHORTS8))


IQ3_XXS = Decoder("IQ3_XXS", _XXS_OFFSET, 2 * _XXS_OFFSET, order_of_fours, _xxs)
IQ3_S = Decoder("IQ3_S", _S_OFFSET, 2 * _S_OFFSET, order_of_fours, _s)
