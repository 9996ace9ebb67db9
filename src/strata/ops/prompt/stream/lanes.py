"""Three streams and their events, or a stand-in that does everything at once."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.prompt.stream.told import sent
from strata.ops.streams import stream


class Lanes(Protocol):
    """A stream that copies and one that makes slots of what was copied, beside the one that computes."""

    def copying(self, body: Callable[[], None], *after: Any) -> Any:
        """Hand a copy over; it begins after some events. Returns an event of its end."""
        ...

    def making(self, body: Callable[[], None], *after: Any) -> Any:
        """Hand over what makes slots; it begins after some events. Returns an event of its end."""
        ...

    def sent(self, numbers: NDArray[np.int32]) -> Tensor:
        """Numbers for what makes slots. A pass may be given up before they are read: their memory is that stream's."""
        ...

    def wait(self, event: Any) -> None:
        """What is handed over to the computing stream from now on begins after the event."""
        ...

    def computed(self) -> Any:
        """An event of the computing stream: all that was handed over to it."""
        ...


class DeviceLanes:
    """Streams of a GPU.

    Copies go through its copy engine and need no multiprocessor. What makes slots goes before what computes: it is some
    0.1 ms a group of experts, and both the link and the products wait for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = stream("copies", device)
        self._makes = stream("makes", device, urgent=True)

    def copying(self, body: Callable[[], None], *after: Any) -> Any:
        """See `Lanes.copying`."""
        return _run(self._copies, body, after)

    def making(self, body: Callable[[], None], *after: Any) -> Any:
        """See `Lanes.making`."""
        return _run(self._makes, body, after)

    def sent(self, numbers: NDArray[np.int32]) -> Tensor:
        """See `Lanes.sent`."""
        with torch.cuda.stream(self._makes):
            return sent(numbers, self._device)

    def wait(self, event: Any) -> None:
        """See `Lanes.wait`."""
        torch.cuda.current_stream(self._device).wait_event(event)

    def computed(self) -> Any:
        """See `Lanes.computed`."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event


def _run(stream: Any, body: Callable[[], None], after: tuple[Any, ...]) -> Any:
    for event in after:
        stream.wait_event(event)
    with torch.cuda.stream(stream):
        body()
    event = torch.cuda.Event()
    event.record(stream)
    return event


class InOrder:
    """Everything when it is handed over: for the CPU, where Triton's interpreter computes."""

    def copying(self, body: Callable[[], None], *after: Any) -> Any:
        """See `Lanes.copying`."""
        return self.making(body, *after)

    def making(self, body: Callable[[], None], *after: Any) -> Any:
        """See `Lanes.making`."""
        assert all(after), "they were handed over before"
        body()
        return True

    def sent(self, numbers: NDArray[np.int32]) -> Tensor:
        """See `Lanes.sent`."""
        return torch.from_numpy(numbers)

    def wait(self, event: Any) -> None:
        """See `Lanes.wait`."""
        assert event, "the copy was handed over before"

    def computed(self) -> Any:
        """See `Lanes.computed`."""
        return True
