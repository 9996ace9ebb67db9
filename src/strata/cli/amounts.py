"""Amounts of memory on a command line."""

from collections.abc import Sequence
from typing import Any

from cyclopts import Token

from strata.config.kinds import Bytes


def amount(_type: Any, tokens: Sequence[Token]) -> Any:
    """For cyclopts: an option that takes a number of bytes.

    Raises:
        UnfitError: it is none.
    """
    return Bytes().check(tokens[0].value)
