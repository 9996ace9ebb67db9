"""What a policy is, offline: it is shown every window in turn and keeps some experts."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
"""layer x E + expert, each once."""


class Setting(NamedTuple):
    """What a policy has to do with.

    Attributes:
        layers: L.
        experts: E.
        slots: experts that fit.
        moves: copies it may make a window.
    """

    layers: int
    experts: int
    slots: int
    moves: int

    @property
    def total(self) -> int:
        """Experts of all layers."""
        return self.layers * self.experts


class Policy(Protocol):
    """One rule for who stays. A copy that is begun after a window is there for the window after the next."""

    def window(self, keys: Keys) -> tuple[int, int]:
        """Look at one window: how many of its experts were there, and how many copies are begun after it."""
        ...
