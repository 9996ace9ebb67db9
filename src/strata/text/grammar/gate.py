"""The token behind which a grammar begins, and the other ways of writing its text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Gate:
    """A token to wait for, such as the end of a thinking block.

    Whoever takes the text apart sees characters, not tokens: the same tag spelled with other tokens would end the
    thinking there, and an answer without a form would follow. So no other token may complete the tag's text, and none
    may end the turn or begin what belongs behind the gate.

    Attributes:
        token: the token.

    Args:
        token: the token.
        shown: the bytes of every token as they are shown; V of them or fewer.
        ending: [V], the tokens that may not come before it: those that end a turn, and the like.
    """

    def __init__(self, token: int, shown: Sequence[bytes], ending: Mask) -> None:
        self.token = token
        self._tag = shown[token]
        self._shown = shown
        # Only tokens with the tag's last byte can complete it.
        self._last = [number for number, text in enumerate(shown) if self._tag[-1:] in text and number != token]
        self._ending = ending
        self._masks: dict[bytes, Mask] = {}

    def allowed(self, tail: bytes) -> Mask:
        """The tokens that may follow, [V]; `tail` as `extended` gives it."""
        mask = self._masks.get(tail)
        if mask is None:
            mask = ~self._ending
            mask[[number for number in self._last if self._tag in tail + self._shown[number]]] = False
            self._masks[tail] = mask
        return mask

    def extended(self, tail: bytes, token: int) -> bytes:
        """The longest beginning of the tag that the text ends with, given the one it ended with before `token`."""
        text = tail + (self._shown[token] if token < len(self._shown) else b"")
        return next((self._tag[:n] for n in range(len(self._tag) - 1, 0, -1) if text.endswith(self._tag[:n])), b"")
