"""Small tensors that the host reads, and waits for no more than for what makes them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Told:
    """A place of the host's memory for one tensor at a time."""

    def __init__(self, size: int, device: torch.device) -> None:
        """Room for so many int32."""
        self._on_gpu = device.type == "cuda"
        self._memory = torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)
        self._event: Any = None

    def send(self, x: Tensor) -> None:
        """Launch the copy of an int32 [size], which may be recorded."""
        self._memory.copy_(x, non_blocking=True)

    def sent(self) -> None:
        """The copy was launched, if only by a record: nothing that is launched from now on holds it up."""
        if self._on_gpu:
            self._event = torch.cuda.Event()
            self._event.record()

    def read(self) -> NDArray[np.int32]:
        """What was sent last, when it has come; valid until the next is sent."""
        if self._event is not None:
            self._event.synchronize()
        return self._memory.numpy()


def sent(numbers: NDArray[np.int32], device: torch.device) -> Tensor:
    """Numbers on their way to a device, on the stream in use."""
    there = torch.from_numpy(numbers)
    return there.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else there
