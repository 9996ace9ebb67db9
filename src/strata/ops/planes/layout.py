"""How a type's planes follow one another in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from strata.errors import FormatError
from strata.formats import by_name

ALIGNMENT = 16  # bytes: every plane starts where a thread can load four words at once


@dataclass(frozen=True, slots=True)
class Plane:
    """One field of all blocks, kept together.

    Attributes:
        name: of the field.
        weights: how many weights a unit of the plane serves.
        bytes: of such a unit.
    """

    name: str
    weights: int
    bytes: int

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of ``width`` weights."""
        return width // self.weights * self.bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """The planes of one type.

    Attributes:
        name: of the block type.
        planes: in the order in which they lie in memory; each is ``[N, units of a row, bytes]``.
        split: ``uint8 [n, block bytes]`` to one ``uint8 [n, bytes per block of the type]`` for each plane.
        join: the inverse.
    """

    name: str
    planes: tuple[Plane, ...]
    split: Callable[[Tensor], tuple[Tensor, ...]] = field(repr=False)
    join: Callable[..., Tensor] = field(repr=False)

    @property
    def bits(self) -> float:
        """Bits per weight."""
        return sum(8 * plane.bytes / plane.weights for plane in self.planes)

    def check(self, rows: int, width: int) -> None:
        """Refuse a shape that is not whole blocks.

        Raises:
            FormatError: saying what would fit.
        """
        if rows <= 0:
            raise FormatError(f"a matrix has at least one row, not {rows}")
        by_name(self.name).row_bytes(width)

    def offsets(self, rows: int, width: int) -> tuple[int, ...]:
        """Where each plane starts, and last where the matrix ends: multiples of `ALIGNMENT`."""
        self.check(rows, width)
        ends = [0]
        for plane in self.planes:
            size = rows * plane.row_bytes(width)
            ends.append(ends[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        return tuple(ends)

    def nbytes(self, rows: int, width: int) -> int:
        """Bytes of a matrix ``[rows, width]``."""
        return self.offsets(rows, width)[-1]

    def views(self, buffer: Tensor, rows: int, width: int) -> list[Tensor]:
        """The planes inside ``uint8 [nbytes]``, each ``uint8 [rows, bytes of a row]``."""
        starts = self.offsets(rows, width)
        sizes = [rows * plane.row_bytes(width) for plane in self.planes]
        return [buffer[at : at + size].view(rows, -1) for at, size in zip(starts[:-1], sizes, strict=True)]
