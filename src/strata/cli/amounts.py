"""Amounts of memory on a command line."""

import re
from collections.abc import Sequence
from typing import Any

from cyclopts import Token

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def nbytes(text: str) -> int:
    """Bytes from "12GB", "11.5 GiB", "800M" or "1200000"; GB is 10**9, GiB 2**30.

    Raises:
        ValueError: it is no such text.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"an amount of memory such as 12GB, 11.5GiB or 800MB, not {text!r}")
    power = "kmgt".find(match[2].lower()) + 1 if match[2] else 0
    unit = 1 << (10 * power) if match[3] else UNITS[match[2].lower()]
    return round(float(match[1]) * unit)


def amount(_type: Any, tokens: Sequence[Token]) -> int:
    """For cyclopts: an option that takes an amount."""
    return nbytes(tokens[0].value)
