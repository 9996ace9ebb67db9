"""The hook by which an engine's routing gets into a file: told of each layer, then of each window's end."""

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.trace import TraceError, TraceWriter


class Recorder:
    """Collects the layers of a window that is being computed.

    Call `layer` from wherever a router's choice can be seen on the host, once for each layer and window, and `window`
    when it is known how many rows are kept. A window that is given up is forgotten with `forget`.
    `strata.lab.routing.listening` does so for a network.

    Attributes:
        windows: that were written.
    """

    def __init__(self, writer: TraceWriter, layers: int) -> None:
        """Write to `writer`, windows of so many layers."""
        self._writer = writer
        self._layers: list[NDArray[np.integer] | None] = [None] * layers
        self.windows = 0

    def layer(self, number: int, experts: NDArray[np.integer]) -> None:
        """The experts [T, topk] that a layer's rows visit."""
        self._layers[number] = experts.copy()

    def window(self, conversation: int | NDArray[np.integer] = 0, kept: int | NDArray[np.bool_] | None = None) -> None:
        """The window's layers are complete, and so many of its rows are kept, or these.

        Raises:
            TraceError: a layer is missing, or the rows cannot be written.
        """
        missing = [number for number, experts in enumerate(self._layers) if experts is None]
        if missing:
            raise TraceError(f"layer {missing[0]} of a window was not recorded")
        rows = np.stack([experts for experts in self._layers if experts is not None], axis=1)
        self.forget()
        self._writer.window(self.windows, rows, conversation, kept)
        self.windows += 1

    def forget(self) -> None:
        """The window comes to nothing."""
        self._layers = [None] * len(self._layers)
