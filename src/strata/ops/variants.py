"""Variants of kernels: what there is, for which cards, why; and which one a launch gets.

Pure Python. A variant is a way to run an operation; all variants marked exact give the same bytes, so choosing among
them is a question of speed alone. The first variant in the table that is on by default and fits wins; a user's choice
by name comes before that, and is refused where it does not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tile:
    """How a product is cut into programs; see `strata.ops.matvec.order`.

    Attributes:
        rows: of a tile, a power of two. Natively a block to a thread: 32 / step for each warp.
        tiles: below one another in a program.
        warps: of a program.
        step: blocks of a row at a time, 16, or 4 or 8 for rows of few blocks, or 32 for matrices of few rows.
        ahead: steps whose weights are loaded before the first of them is decoded.
        group: rows of activations a program takes, most; others are for further programs, which read weights again.
        pairs: of an expert, most at once; more go through again.
        registers: most that a thread may have, or 0 for what the compiler likes.
    """

    rows: int = 2
    tiles: int = 1
    warps: int = 1
    step: int = 16
    ahead: int = 5
    group: int = 8
    pairs: int = 2
    registers: int = 0

    def constants(self, blocks: int) -> dict[str, int]:
        """The constants of a kernel for rows of so many blocks."""
        return {"RR": self.tiles, "H": self.rows, "L": self.step, "B": blocks, "D": self.ahead}

    def options(self) -> dict[str, int]:
        """Options of a launch."""
        return {"num_warps": self.warps} | ({"maxnreg": self.registers} if self.registers else {})


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run one operation.

    Attributes:
        op: the operation.
        name: unique within the operation.
        tile: what the launcher needs to know.
        why: the idea, and what decided.
        measured: where the numbers are.
        archs: compute capabilities times ten it is meant for; none for all.
        types: block types it is meant for; none for all.
        rows: fewest and most rows of activations.
        widths: least and greatest K.
        outputs: least and greatest N.
        exact: same bytes as every other exact variant.
        default: used without being asked for.
    """

    op: str
    name: str
    tile: Tile
    why: str
    measured: str
    archs: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    rows: tuple[int, int] = (1, 8)
    widths: tuple[int, int] = (1, 1 << 30)
    outputs: tuple[int, int] = (1, 1 << 30)
    exact: bool = True
    default: bool = True

    def fits(self, arch: int, block_type: str, rows: int, width: int, outputs: int) -> bool:
        """Whether it may be used for such a launch."""
        return (
            (not self.archs or arch in self.archs)
            and (not self.types or block_type in self.types)
            and self.rows[0] <= rows <= self.rows[1]
            and self.widths[0] <= width <= self.widths[1]
            and self.outputs[0] <= outputs <= self.outputs[1]
        )


def resolve(
    table: Sequence[Variant],
    op: str,
    arch: int,
    block_type: str,
    rows: int,
    width: int,
    outputs: int,
    choice: str | None = None,
) -> Variant:
    """The variant for a launch.

    Args:
        table: all variants.
        op: the operation.
        arch: compute capability times ten, e.g. 86.
        block_type: of the weights.
        rows: of activations.
        width: K.
        outputs: N.
        choice: a variant the user asked for by name.

    Raises:
        ConfigError: there is no such variant, it does not fit, or none fits.
    """
    mine = [variant for variant in table if variant.op == op]
    fitting = [variant for variant in mine if variant.fits(arch, block_type, rows, width, outputs)]
    where = f"{op} with {block_type} weights, {rows} rows, {outputs} x {width} on sm_{arch}"
    if choice is not None:
        for variant in fitting:
            if variant.name == choice:
                return variant
        known = ", ".join(variant.name for variant in fitting) or "none"
        raise ConfigError(f"variant {choice!r} cannot be used for {where}; there are {known}")
    for variant in fitting:
        if variant.default:
            return variant
    raise ConfigError(f"there is no kernel for {where}; rows are 1 to 8, widths multiples of 32")
