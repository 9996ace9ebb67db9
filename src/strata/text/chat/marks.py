"""Marks: strings that stand for a place or a control token while a template works on the text around them."""

import re
import secrets
from collections.abc import Iterable

from strata.text.prompt import Control


class Marks:
    """Marks with a number drawn when the template is loaded.

    A mark is a random number and an index between two private-use characters. It has no letters and no spaces, so
    trimming, splitting, changing case and writing JSON leave it whole. The number (64 bits, never shown to anybody)
    cannot be guessed, so no message can contain a mark.

    Attributes:
        of_control: Control-token text to its mark.
        cut: The prompt ends here.
        kept: Proves that a template wrote a message.
        opening: Begins a system message that is not the first message.
        closing: Ends it.
    """

    def __init__(self, controls: Iterable[str]) -> None:
        self._number = f"{secrets.randbits(64):020d}"
        self._controls = tuple(controls)
        self.of_control = {text: self._mark(place) for place, text in enumerate(self._controls)}
        first = len(self._controls)
        self.cut, self.kept, self.opening, self.closing = (self._mark(first + place) for place in range(4))
        self._pattern = re.compile(f"\ue000{self._number}\\.([0-9]+)\ue001")

    def pieces(self, rendered: str) -> tuple[str | Control, ...]:
        """Plain texts and control tokens of a rendered text in which only marks of control tokens are left."""
        pieces: list[str | Control] = []
        # A pattern with one group alternates: text, index, text, ..., text.
        for place, piece in enumerate(self._pattern.split(rendered)):
            if place % 2:
                pieces.append(Control(self._controls[int(piece)]))
            elif piece:
                pieces.append(piece)
        return tuple(pieces)

    def _mark(self, place: int) -> str:
        return f"\ue000{self._number}.{place}\ue001"
