"""Where a value came from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from.

    Attributes:
        source: "default", "file", "environment" or "flag".
        name: the file's path, the variable or the flag; empty for a default.
    """

    source: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.name}".rstrip()
