"""Streams by name; tests/gpu has a card."""

import pytest
import torch

from strata.errors import TierError
from strata.ops import streams


class Driver:
    """Numbers instead of streams."""

    def __init__(self, monkeypatch, *, gives=True) -> None:
        self.made: list[tuple[int, int]] = []
        self.gives = gives
        monkeypatch.setattr(streams, "_driver", lambda: self)
        streams._made.cache_clear()
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "device", Here)
        monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)

    def cuStreamCreateWithPriority(self, found, flags, priority) -> int:  # noqa: N802  # the driver's name
        if not self.gives:
            return 2
        self.made.append((flags, priority))
        found._obj.value = 1000 + len(self.made)
        return 0


class Here:
    """`torch.cuda.device`."""

    def __init__(self, device) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_) -> None: ...


class Stream:
    def __init__(self, pointer, device) -> None:
        self.cuda_stream, self.device = pointer, device


def test_a_name_is_a_stream(monkeypatch):
    driver = Driver(monkeypatch)
    names = [("a", False), ("b", False), ("a", True), ("b", False)]
    assert [streams.stream(name, urgent=urgent).cuda_stream for name, urgent in names] == [1001, 1002, 1003, 1002]
    assert driver.made == [(1, 0), (1, 0), (1, -1)]


def test_a_driver_that_gives_none(monkeypatch):
    Driver(monkeypatch, gives=False)
    with pytest.raises(TierError, match="gives no stream"):
        streams.stream("a")


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    streams._made.cache_clear()
