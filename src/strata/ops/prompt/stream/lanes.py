"""Two streams and their events, or a stand-in that does everything at once."""

from collections.abc import Callable
from typing import Any, Protocol

import torch


class Lanes(Protocol):
    """A stream that copies beside the one that computes."""

    def copying(self, body: Callable[[], None], after: Any | None) -> Any:
        """Hand a copy over; it begins after an event of the computing stream. Returns an event of its end."""
        ...

    def wait(self, event: Any) -> None:
        """What is handed over to the computing stream from now on begins after the event."""
        ...

    def computed(self) -> Any:
        """An event of the computing stream: all that was handed over to it."""
        ...


class DeviceLanes:
    """Streams of a GPU.

    Copies are of a lower priority than what computes: where a kernel copies, it takes what is left.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copying(self, body: Callable[[], None], after: Any | None) -> Any:
        """See `Lanes.copying`."""
        if after is not None:
            self._stream.wait_event(after)
        with torch.cuda.stream(self._stream):
            body()
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def wait(self, event: Any) -> None:
        """See `Lanes.wait`."""
        torch.cuda.current_stream(self._device).wait_event(event)

    def computed(self) -> Any:
        """See `Lanes.computed`."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event


class InOrder:
    """Everything when it is handed over: for the CPU, where Triton's interpreter computes."""

    def copying(self, body: Callable[[], None], after: Any | None) -> Any:  # noqa: ARG002  # it is over
        """See `Lanes.copying`."""
        body()
        return True

    def wait(self, event: Any) -> None:
        """See `Lanes.wait`."""
        assert event, "the copy was handed over before"

    def computed(self) -> Any:
        """See `Lanes.computed`."""
        return True
