"""What windows met: which experts they visited, where those were, and how long anybody was waited for."""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over layers, of one window or many.

    Attributes:
        layers: that were computed, each time anew.
        experts: distinct ones that were visited (the union of a window's rows, layer by layer).
        resident: of these, found in slots.
        link: brought over the link for the occasion.
        host: computed where they lie.
        whole: layers that missed none.
        waits: layers that asked the host.
        waited_us: microseconds in all from their messages to its answers (in the interpreter: looks). Beside that, hits
            are computed and what the link brings; a layer waits for whichever is last.
        ssd: of those that the host computed, read from the disk before.
        read_us: microseconds in all that the host waited for the disk.
    """

    layers: int = 0
    experts: int = 0
    resident: int = 0
    link: int = 0
    host: int = 0
    whole: int = 0
    waits: int = 0
    waited_us: float = 0.0
    ssd: int = 0
    read_us: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of visits that found a slot."""
        return self.resident / self.experts if self.experts else 1.0

    def read(self, experts: int, microseconds: float) -> "Tally":
        """The same, when so many experts were read from the disk besides."""
        return replace(self, ssd=self.ssd + experts, read_us=self.read_us + microseconds)

    def __sub__(self, earlier: "Tally") -> "Tally":
        """What came since."""
        return Tally(*(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)))
