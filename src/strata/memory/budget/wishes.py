"""What somebody wants of a model on a machine."""

from dataclasses import dataclass

VRAM_KEPT = 512 << 20
"""Bytes of VRAM kept free, and a 64th of all: for the desktop, other programs, and what an allocator cannot use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Wishes; None leaves the choice to the plan.

    Attributes:
        context: tokens a conversation may hold; None is all that the model can.
        conversations: that run at a time.
        kv: type of keys and values.
        drafts: whether the draft head runs.
        headroom: bytes of VRAM to leave free.
        ram_headroom: bytes of RAM to leave to the system.
        parked: bytes of RAM for conversations that are kept.
        experts: most bytes for experts: of VRAM, or of RAM where there is no card.
        table: where the n-gram table is to lie: "ram" or "ssd".
    """

    context: int | None = None
    conversations: int = 1
    kv: str | None = None
    drafts: bool = True
    headroom: int | None = None
    ram_headroom: int | None = None
    parked: int = 0
    experts: int | None = None
    table: str | None = None

    def vram_kept(self, vram: int) -> int:
        """Bytes of VRAM to leave free."""
        return VRAM_KEPT + vram // 64 if self.headroom is None else self.headroom

    def ram_kept(self, ram: int) -> int:
        """Bytes of RAM to leave to the system: a sixteenth unless something else is said."""
        return ram // 16 if self.ram_headroom is None else self.ram_headroom
