"""How much is measured: sizes and rounds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Sizes in bytes.

    Attributes:
        quick: whether it is the short way.
        rounds: values of each measurement.
        seconds: of one round, about, where that is a matter of choice.
        ram: memory that is read.
        matrices: of a matrix, or of a layer's experts, that the CPU computes with; larger than caches.
        file: of random bytes that are written to a disk and read back, where there is no model file.
        depths: reads that are under way at once.
        rows: of a window that kernels are tried with.
        vram: memory of a GPU that is read.
        pinned: RAM that a GPU reads.
        square: size of the matrices that a GPU multiplies.
    """

    quick: bool
    rounds: int
    seconds: float
    ram: int
    matrices: int
    file: int
    depths: tuple[int, ...]
    rows: tuple[int, ...]
    vram: int
    pinned: int
    square: int


FULL = Effort(
    quick=False, rounds=7, seconds=0.3, ram=1 << 30, matrices=256 << 20, file=2 << 30, depths=(1, 4, 8, 16),
    rows=(1, 2, 3, 4, 5, 6, 7, 8), vram=1 << 30, pinned=512 << 20, square=8192,
)  # fmt: skip
QUICK = Effort(
    quick=True, rounds=3, seconds=0.1, ram=256 << 20, matrices=128 << 20, file=256 << 20, depths=(1, 8),
    rows=(1, 4, 8), vram=512 << 20, pinned=128 << 20, square=4096,
)  # fmt: skip
