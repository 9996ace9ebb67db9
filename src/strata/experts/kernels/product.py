"""The common part of every kernel: decoded blocks times up to eight rows of activations, in the fixed order.

Bytes moved: a row of weights is read and decoded once, group by group of 256 weights, and multiplied with all T rows
of activations while it is in registers. Activations (448 bytes a group and row) and the running sums stay in the
first-level cache. The order of operations is section "Quantised products" of docs/numerics.md.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from strata.experts.kernels.decoded import Decoder, Group
from strata.experts.kernels.decoders import DECODERS
from strata.experts.kernels.emit import BLOCK_FLOATS, BLOCK_INTS, FLOAT, I8, I32, I64, Emit
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import intrinsic
from strata.experts.kernels.record import GROUP, KEEP_AT, SCALE_AT, SUM_AT
from strata.experts.kernels.targets import TARGETS, Target
from strata.experts.kernels.targets.target import Unsigned
from strata.formats import by_name

# With more than four rows the activations no longer fit into a first-level cache of 32 KB beside the weights (at 2560
# inputs), and the processor stops prefetching weights well. Asking for them 4 KB ahead then gives 1.5 times the speed
# for Q8_0, 2.3 times for IQ4_NL and 2.7 times for IQ3_XXS at eight rows (Zen 4); with fewer rows it costs up to 10%.
_ALONE, _AHEAD = 4, 4096

_EVEN, _ODD = [*range(0, 16, 2)], [*range(1, 16, 2)]


def _keep(emit: Emit, units: ir.Value, record: ir.Value) -> ir.Value:
    """Zero for blocks behind the end of a row: what was read there belongs to another row."""
    mask = emit.load(record, KEEP_AT, BLOCK_INTS)
    return emit.cast(emit.builder.and_(emit.cast(units, BLOCK_INTS), mask), BLOCK_FLOATS)


def _kept(emit: Emit, group: Group, record: ir.Value) -> Group:
    units = tuple(_keep(emit, unit, record) for unit in group.units)
    minimum = None if group.minimum is None else _keep(emit, group.minimum, record)
    return Group(group.registers, units, group.step, minimum)


def _parts(emit: Emit, target: Target, decoder: Decoder, group: Group, record: ir.Value) -> ir.Value:
    """What eight blocks contribute to one row's sum: ``<8 x float>``."""
    builder = emit.builder
    dots = target.dot(emit, Unsigned(group.registers, decoder.offset, decoder.largest), record)
    if group.step is not None:
        dots = builder.mul(dots, group.step)
    sides = [emit.pick(dots, _EVEN), emit.pick(dots, _ODD)]
    if len(group.units) == 1:
        sides = [builder.add(*sides)]
    scale = emit.load(record, SCALE_AT, BLOCK_FLOATS)
    terms = [
        builder.fmul(builder.fmul(unit, scale), emit.floats(side))
        for unit, side in zip(group.units, sides, strict=True)
    ]
    if group.minimum is not None:
        terms.append(builder.fmul(group.minimum, emit.load(record, SUM_AT, BLOCK_FLOATS)))
    return terms[0] if len(terms) == 1 else builder.fadd(*terms)


def _prefetch(emit: Emit, raw: ir.Value, size: int) -> None:
    """Ask for the bytes that will be decoded some groups from now; asking for what does not exist does no harm."""
    for line in range(-(-size // 64)):
        emit.prefetch(emit.builder.gep(raw, [I64(_AHEAD + 64 * line)]))


def name_of(decoder: Decoder, target: Target, *, whole: bool) -> str:
    """What `group_step` needs to know, as a constant that Numba can store with the compiled code."""
    return "/".join([fingerprint(), decoder.name, target.name, "whole" if whole else "padded"])


@intrinsic(prefer_literal=True)
def group_step(_context: Any, name: Any, raw: Any, inputs: Any, offset: Any, sums: Any, rows: Any) -> Any:
    """Decode eight blocks and add their part to every row's sums.

    ``group_step(name, raw, inputs, offset, sums, rows)``: a constant from `name_of`; addresses of the blocks, of the
    addresses of the rows' records, of which the group's lie ``offset`` bytes further, and of the running sums ``float32
    [rows, 16]``, at the half that these blocks belong to.
    """
    _, decoder_name, target_name, shape = name.literal_value.split("/")
    decoder, target, block = DECODERS[decoder_name], TARGETS[target_name], by_name(decoder_name)

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        emit = Emit(builder)
        raw_at, inputs_at, sums_at = (builder.inttoptr(arguments[i], I8.as_pointer()) for i in (1, 2, 4))

        def record_of(row: ir.Value) -> ir.Value:
            first = emit.load(builder.gep(inputs_at, [builder.mul(row, I64(8))]), 0, I64)
            return builder.inttoptr(builder.add(first, arguments[3]), I8.as_pointer())

        with builder.if_then(builder.icmp_signed(">", arguments[5], I64(_ALONE))):
            _prefetch(emit, raw_at, GROUP * block.bytes // block.weights)
        group = decoder.decode(emit, target, raw_at)
        if shape == "padded":
            group = _kept(emit, group, record_of(I64(0)))
        with cgutils.for_range(builder, arguments[5]) as loop:
            record = record_of(loop.index)
            total = builder.gep(sums_at, [builder.mul(loop.index, I64(64))])
            parts = _parts(emit, target, decoder, group, record)
            emit.store(builder.fadd(emit.load(total, 0, BLOCK_FLOATS), parts), total)
        return context.get_dummy_value()

    return types.void(name, raw, inputs, offset, sums, rows), codegen


def halved(emit: Emit, lanes: ir.Value) -> ir.Value:
    """The tree: lanes l and l + 8, then l and l + 4, then l and l + 2, then the last two. ``<16 x float> -> float``."""
    for width in (8, 4, 2, 1):
        lanes = emit.builder.fadd(emit.pick(lanes, range(width)), emit.pick(lanes, range(width, 2 * width)))
    return emit.builder.extract_element(lanes, I32(0))


@intrinsic
def finish(_context: Any, sums: Any, outputs: Any, offset: Any, rows: Any, scale: Any) -> Any:
    """Halve 16 lanes to one sum per row, times the scale, and write it; the lanes are zero afterwards.

    ``finish(sums, outputs, offset, rows, scale)``: addresses of the lanes and of the addresses of the rows' outputs, of
    which this one lies ``offset`` bytes further. A scale of one changes no bit.
    """

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        emit = Emit(builder)
        sums_at, outputs_at = (builder.inttoptr(arguments[i], I8.as_pointer()) for i in (0, 1))
        kind = ir.VectorType(FLOAT, 16)
        with cgutils.for_range(builder, arguments[3]) as loop:
            total = builder.gep(sums_at, [builder.mul(loop.index, I64(64))])
            lanes = emit.load(total, 0, kind)
            emit.store(emit.every(kind, 0.0), total)
            first = emit.load(builder.gep(outputs_at, [builder.mul(loop.index, I64(8))]), 0, I64)
            place = builder.inttoptr(builder.add(first, arguments[2]), I8.as_pointer())
            emit.store(builder.fmul(halved(emit, lanes), arguments[4]), place)
        return context.get_dummy_value()

    return types.void(sums, outputs, offset, rows, scale), codegen
