"""What a processor family has to offer to decoders and dot products."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import Emit


@dataclass(frozen=True, slots=True)
class Unsigned:
    """Weights moved up so that none is negative.

    Attributes:
        registers: four ``<64 x i8>``.
        offset: what was added to every weight.
        largest: the largest number in the registers.
    """

    registers: tuple[ir.Value, ...]
    offset: int
    largest: int


@dataclass(frozen=True, slots=True)
class Index:
    """Indices into a table.

    Attributes:
        vector: ``<32 x i16>``.
        scalars: the same one by one, where they can be had without the vector; what is not used costs nothing.
    """

    vector: ir.Value
    scalars: tuple[ir.Value, ...] = ()


class ByteTables(Protocol):
    """Looking up 64 bytes at once."""

    def look_up(self, emit: Emit, table: NDArray[np.uint8], low: ir.Value, high: Sequence[ir.Value]) -> ir.Value:
        """A table of 128, 256 or 512 bytes, indexed by a byte and further bits: ``<64 x i8> -> <64 x i8>``.

        Args:
            emit: the builder.
            table: ``uint8 [entries]``.
            low: the index's low byte.
            high: the index's bits from 8 on, each a ``<64 x i1>``.
        """


class Target(Protocol):
    """One way of writing what portable IR cannot say well."""

    @property
    def name(self) -> str:
        """As users and results call it."""

    @property
    def byte_tables(self) -> ByteTables | None:
        """Tables of bytes looked up in registers, where the processor has the instruction."""

    @property
    def word_tables(self) -> bool:
        """Whether `lookup_words` of up to 512 words stays in registers."""

    def halves(self, emit: Emit, bits: ir.Value) -> ir.Value:
        """Float16 numbers as float32: ``<8 x i16> -> <8 x float>``, exact, subnormals kept."""

    def levels(self, emit: Emit, table: Sequence[int], codes: ir.Value) -> ir.Value:
        """A table of up to 16 bytes at every code 0..15: ``<64 x i8> -> <64 x i8>``."""

    def lookup_words(self, emit: Emit, table: NDArray[np.uint16], index: Index) -> ir.Value:
        """A table of 16-bit words at 32 indices: ``<32 x i16>``."""

    def dot(self, emit: Emit, codes: Unsigned, record: ir.Value) -> ir.Value:
        """Sums of products of codes and activations, four by four: ``<16 x i32>``.

        Args:
            emit: the builder.
            codes: four registers of weights.
            record: pointer to one row's activations for the group; see `strata.experts.kernels.record`.
        """
