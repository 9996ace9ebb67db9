"""What a window yields: each row's own choice, as long as the row after it was fed that very token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata.engine.choice import Token
    from strata.errors import StrataError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a window yields.

    Attributes:
        tokens: chosen tokens in order; a stop token only as the last.
        rows: rows to commit, those whose input is part of the text.
        error: why the row after the last token gave none: it computed no numbers, or nothing was allowed.
    """

    tokens: "tuple[Token, ...]"
    rows: int
    error: "StrataError | None" = None
