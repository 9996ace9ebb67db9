"""What is spent of one kind of memory, and on what."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that takes memory.

    Attributes:
        name: of it.
        nbytes: bytes.
        note: what it is for, in a few words.
    """

    name: str
    nbytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """A budget of bytes and its parts.

    Attributes:
        budget: bytes there are.
        parts: what they go to; parts of no bytes are left out.
    """

    budget: int
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, budget: int, parts: Iterable[Part]) -> "Account":
        """An account without empty parts."""
        return cls(budget, tuple(part for part in parts if part.nbytes))

    @property
    def used(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def free(self) -> int:
        """Bytes that nothing takes."""
        return self.budget - self.used

    def bytes_of(self, name: str) -> int:
        """Bytes of a part; 0 if it is not there."""
        return sum(part.nbytes for part in self.parts if part.name == name)
