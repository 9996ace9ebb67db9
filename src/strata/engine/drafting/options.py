"""What may be guessed."""

from dataclasses import dataclass

from strata.errors import RequestError

DEEPEST = 7
"""A window has eight rows, and the first is no guess."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """What may be guessed. None of it changes the text.

    Attributes:
        depth: most tokens guessed for a window, 0 to 7; 0 guesses nothing.
        measured: guess as many of them as measured time and acceptance say will pay, else always as many.
        lookup: guess what followed the last time the same tokens were seen; where `measured`, if that promises more
            than the head, else before it.
        head: guess with the model's draft head, which the network must feed (`Network.drafts`).
        floor: the head's chain ends before a token it finds less probable than this.

    Raises:
        RequestError: a value is out of range.
    """

    depth: int = 0
    measured: bool = False
    lookup: bool = True
    head: bool = False
    floor: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or not 0 <= self.depth <= DEEPEST:
            raise RequestError(f"drafts must be an integer from 0 to {DEEPEST}, not {self.depth!r}")
        for name in ("measured", "lookup", "head"):
            if not isinstance(getattr(self, name), bool):
                raise RequestError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if not isinstance(self.floor, float | int) or not 0 <= self.floor <= 1:
            raise RequestError(f"the confidence floor of drafts must be from 0 to 1, not {self.floor!r}")
