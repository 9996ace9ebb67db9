"""What a window takes on a machine: the 125B model's bytes at 2.85 bits a weight over a machine's bandwidths."""

from dataclasses import dataclass

EXPERT = 1_750_000
"""Bytes of an expert."""

LATENCY = 1.2e-3
"""Seconds of dependent kernel starts in a window."""

COMMIT = 0.3e-3
"""Seconds of a commit, in which the link is idle."""

DENSE, ROW = 3.92e9, 0.344e9
"""Bytes that a window of one row reads besides experts, and that each further row adds."""

STEP = 0.32e9
"""Bytes of a draft step."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A card and its host.

    Attributes:
        name: in words.
        resident: share of the experts that fits into VRAM.
        card: bytes per second of VRAM.
        cpu: bytes per second at which the CPU computes misses.
        link: bytes per second of the link.
        shared: whether the link computes a share of the misses.
    """

    name: str
    resident: float
    card: float
    cpu: float
    link: float
    shared: bool

    @property
    def miss(self) -> float:
        """Seconds of one miss."""
        return EXPERT / (self.cpu + (self.link if self.shared else 0.0))

    @property
    def step(self) -> float:
        """Seconds of a draft step."""
        return STEP / self.card

    def window(self, rows: int, visits: int, misses: int, moved: float = 0.0) -> float:
        """Seconds of a window: misses are computed while hits are, and wait for copies on the link that are not over.

        Args:
            rows: of the window.
            visits: distinct experts.
            misses: of them.
            moved: seconds of copies that did not fit between windows.
        """
        dense = LATENCY + (DENSE + ROW * (rows - 1)) / self.card
        waiting = misses * self.miss + (moved if self.shared else 0.0)
        return dense + max((visits - misses) * EXPERT / self.card, waiting)

    def copies(self, count: int) -> float:
        """Seconds of so many copies."""
        return count * EXPERT / self.link


MACHINES = (
    Machine("24 GB (3090), CPU 40 GB/s and PCIe 4", 0.42, 936e9, 40e9, 25e9, shared=True),
    Machine("24 GB (3090), CPU 40 GB/s only", 0.42, 936e9, 40e9, 25e9, shared=False),
    Machine("12 GB (5070), CPU 40 GB/s and PCIe 4", 0.12, 672e9, 40e9, 25e9, shared=True),
    Machine("12 GB (5070), CPU 40 GB/s only", 0.12, 672e9, 40e9, 25e9, shared=False),
)
