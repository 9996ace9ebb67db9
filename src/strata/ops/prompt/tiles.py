"""How products of many rows are cut into programs. No choice here changes a byte; tests on a device hold that."""

from dataclasses import dataclass
from typing import Any

BAND = 8
"""Tiles of rows side by side: neighbours in time share a matrix's columns, which then come from L2."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Of a product.

    Attributes:
        rows: of activations.
        columns: rows of the matrix.
        depth: numbers of K in a step.
        warps: of a program.
        stages: steps in flight.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def constants(self) -> dict[str, int]:
        """Of a kernel."""
        return {"BM": self.rows, "BN": self.columns, "BK": self.depth, "GROUP": BAND}

    def options(self) -> dict[str, Any]:
        """Of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": False}


_INTERPRETED = Tile(64, 256, 256, 4, 1)

_ROOMY = (80, 90, 100)
"""Cards whose programs may have 160 KB of shared memory and more; the others have 99."""


def dense_tile(arch: int, room: int) -> Tile:
    """Of a product with a matrix written out.

    Args:
        arch: compute capability times ten; 0 for the interpreter.
        room: rows there may be.
    """
    if arch == 0:
        return _INTERPRETED
    if room <= 64:
        return Tile(16 if room <= 16 else 32 if room <= 32 else 64, 64, 128 if arch in _ROOMY else 64, 4, 4)
    return Tile(128, 128, 64, 8, 4 if arch in _ROOMY else 3)


def low_tile(arch: int, room: int) -> Tile:
    """Of the narrow product of a read: few columns, long rows."""
    if arch == 0:
        return _INTERPRETED
    if room <= 32:
        return Tile(16, 32, 128, 4, 5)
    if arch not in _ROOMY:
        return Tile(32, 64, 128, 4, 4) if room <= 1024 else Tile(128, 128, 64, 8, 3)
    return Tile(64, 64, 128, 4, 4) if room <= 1024 else Tile(128, 128, 64, 8, 4)


def mean_tile(arch: int, room: int) -> Tile:
    """Of the wide product of a read, with the mean of the streams."""
    if arch == 0:
        return Tile(64, 256, 64, 4, 1)
    return Tile(16, 32, 64, 4, 3) if room <= 32 else Tile(64, 64, 64, 4, 3)


def exact_tile(arch: int, room: int) -> Tile:
    """Of the router's product."""
    if arch == 0:
        return _INTERPRETED
    if room <= 32:
        return Tile(16, 32, 128, 4, 4)
    return Tile(64, 64, 64, 4, 4)


def attention_tile(arch: int) -> tuple[int, int]:
    """Pairs of row and head that a program of `attention.dense` takes, and its warps."""
    if arch == 0:
        return 64, 4
    return (64, 8) if arch in _ROOMY else (32, 4)


def expert_tile(arch: int, room: int, topk: int, experts: int) -> int:
    """Most pairs of an expert in a program, by how many there are on average."""
    each = room * topk / experts
    if arch == 0 or each <= 12:
        return 16
    return 32 if each <= 24 else 64 if each <= 48 else 128


def expert_options(arch: int, tile: int) -> dict[str, Any]:
    """Of a grouped product's launch: four warps hold a matrix's tile as the tensor cores want it.

    With few pairs there is room for a fourth program on a multiprocessor, if none takes more than 128 registers.
    """
    options = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False}
    return options | {"maxnreg": 128} if arch and tile <= 32 else options
