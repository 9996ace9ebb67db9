"""Names of files in messages, which hold text alone: on Linux a name is any bytes."""

import os
from pathlib import Path

_BYTES = "\0"
"""Before the bytes in hex of a name that is no text; no name of a file begins with it."""


def written(path: str | Path) -> str:
    """A name as a message holds it."""
    name = os.fspath(path)
    return name if shown(name) == name else _BYTES + os.fsencode(name).hex()


def read(name: str) -> str:
    """The name as the system takes it."""
    return os.fsdecode(bytes.fromhex(name[1:])) if name.startswith(_BYTES) else name


def shown(path: str | Path) -> str:
    """The name as text for people and clients, with U+FFFD where it is none."""
    return os.fsencode(path).decode("utf-8", errors="replace")
