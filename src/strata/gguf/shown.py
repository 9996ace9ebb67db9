"""How names from outside appear in error messages: whole where sane, short and printable always."""

import os
from pathlib import Path

_LONGEST = 120  # characters of a name; a lying length field must not fill the screen


def shown_name(name: str) -> str:
    """A key or tensor name in quotes, control characters escaped, cut at a sane length."""
    if len(name) <= _LONGEST:
        return repr(name)
    return f"{name[:_LONGEST]!r}... ({len(name)} characters)"


def shown_path(path: Path) -> str:
    """A path with its letters intact; bytes that are no UTF-8 appear as escapes, so printing cannot fail."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
