"""What a decoder is, and what it hands to the common dot product."""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from strata.experts.kernels.emit import Emit
from strata.experts.kernels.order import Order
from strata.experts.kernels.targets.target import Target


@dataclass(frozen=True, slots=True)
class Group:
    """Eight decoded blocks of 32 weights.

    Attributes:
        registers: four ``<64 x i8>``, the codes moved up by the decoder's offset so that none is negative.
        units: one or two ``<8 x float>``: the float scale of each block, or of each half of each block.
        step: ``<16 x i32>``, the integer scale of each half block, or None.
        minimum: ``<8 x float>``, or None.
    """

    registers: tuple[ir.Value, ...]
    units: tuple[ir.Value, ...]
    step: ir.Value | None = None
    minimum: ir.Value | None = None


@dataclass(frozen=True, slots=True)
class Decoder:
    """How a block type becomes registers.

    Attributes:
        name: of the block type.
        offset: what is added to every code.
        largest: largest code after that.
        order: where the weights end up; may depend on the target.
        decode: writes the IR that reads a group from a pointer.
    """

    name: str
    offset: int
    largest: int
    order: Callable[[Target], Order]
    decode: Callable[[Emit, Target, ir.Value], Group]
