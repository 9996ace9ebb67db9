"""What does not fit, in numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.errors import RequestError
from strata.memory.budget.account import Part
from strata.memory.budget.shown import shown_bytes


@dataclass(frozen=True, slots=True)
class Shortage:
    """The least that has to fit, and does not.

    Attributes:
        where: "VRAM", "RAM" or "the disk".
        parts: what is needed at least.
        free: bytes there are.
    """

    where: str
    parts: tuple[Part, ...]
    free: int

    @property
    def need(self) -> int:
        """Bytes that are needed."""
        return sum(part.nbytes for part in self.parts)

    def __str__(self) -> str:
        items = ", ".join(f"{shown_bytes(part.nbytes)} {_of(part)}" for part in self.parts if part.nbytes)
        return f"{shown_bytes(self.need)} of {self.where} are needed, {shown_bytes(self.free)} are there: {items}"


def _of(part: Part) -> str:
    return part.name if part.name.startswith(("kept free", "left to")) else f"for {part.name}"


class DoesNotFitError(RequestError):
    """A model does not fit a machine, whatever the plan.

    Attributes:
        shortage: what is needed and what is there.
        advice: changes, each of which makes it fit, as flags; the smallest of each kind.
    """

    def __init__(self, message: str, shortage: Shortage, advice: Sequence[str]) -> None:
        self.shortage = shortage
        self.advice = tuple(advice)
        help_ = f"; what would help: {', or '.join(advice)}" if advice else ""
        super().__init__(f"{message}{help_}")
