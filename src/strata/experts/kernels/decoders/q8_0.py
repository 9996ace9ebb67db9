"""Q8_0: a float16 scale and 32 signed bytes."""

from llvmlite import ir

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.emit import BYTES, I8, I16, LANES, Emit
from strata.experts.kernels.order import QUADS
from strata.experts.kernels.targets.target import Target

_STRIDE = 34


def _decode(emit: Emit, target: Target, raw: ir.Value) -> Group:
    half_block = ir.VectorType(I8, 32)
    blocks = [emit.load(raw, _STRIDE * b + 2, half_block) for b in range(8)]
    pairs = [emit.cast(emit.join(blocks[i : i + 2]), LANES) for i in (0, 2, 4, 6)]
    # First gather the first and the last 16 bytes of four blocks in a register, then 8 bytes of all eight.
    low = [*range(4), *range(8, 12), *range(16, 20), *range(24, 28)]
    high = [place + 4 for place in low]
    halves = [emit.shuffle(a, b, side) for side in (low, high) for a, b in (pairs[:2], pairs[2:])]
    first = [place for lane in range(8) for place in (4 * lane, 4 * lane + 1)]
    last = [place + 2 for place in first]
    quads = [emit.shuffle(halves[i], halves[i + 1], side) for i in (0, 2) for side in (first, last)]
    offset = emit.every(BYTES, 0x80)
    registers = tuple(emit.builder.xor(emit.cast(quad, BYTES), offset) for quad in quads)
    scales = emit.gather(I16, [emit.load(raw, _STRIDE * b, I16) for b in range(8)])
    return Group(registers, (target.halves(emit, scales),))


Q8_0 = Decoder("Q8_0", 128, 255, lambda _: QUADS, _decode)
