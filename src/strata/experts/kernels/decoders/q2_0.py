"""Q2_0 in both layouts: a byte holds four neighbouring weights, so the four registers are its four pairs of bits."""

from collections.abc import Callable

from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.emit import I8, I16, Emit
from strata.experts.kernels.order import PLANES
from strata.experts.kernels.targets.target import Target


def _decode(weights: int) -> Callable[[Emit, Target, ir.Value], Group]:
    size = 2 + weights // 4
    count = 256 // weights

    def decode(emit: Emit, target: Target, raw: ir.Value) -> Group:
        packed = emit.join([emit.load(raw, size * b + 2, ir.VectorType(I8, weights // 4)) for b in range(count)])
        registers = tuple(emit.low_bits(emit.byte_shift(packed, shift), 2) for shift in (0, 2, 4, 6))
        scales = [emit.load(raw, size * b, I16) for b in range(count)]
        unit = target.halves(emit, emit.gather(I16, [scales[32 * b // weights] for b in range(8)]))
        return Group(registers, (unit,))

    return decode


Q2_0 = Decoder("Q2_0", 1, 3, lambda _: PLANES, _decode(64))
Q2_0_128 = Decoder("Q2_0_128", 1, 3, lambda _: PLANES, _decode(128))
