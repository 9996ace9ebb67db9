"""A stand-in for a device's streams: each goes on in order, whenever it likes, and none past an event too early."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Event:
    """Of a stream: whether it has come so far."""

    def __init__(self) -> None:
        self.over = False


class LooseLanes:
    """`strata.ops.prompt.stream.lanes.Lanes` whose streams do nothing by themselves.

    Args:
        choose: picks one of some streams that could go on; None for none of them now.
    """

    def __init__(self, choose: Callable[[list[str]], str | None]) -> None:
        self._choose = choose
        self._streams: dict[str, deque[Any]] = {name: deque() for name in ("copies", "makes", "computes")}
        self.done = dict.fromkeys(self._streams, 0)

    def copying(self, body: Callable[[], None], *after: Any) -> Any:
        return self._launch("copies", body, *after)

    def making(self, body: Callable[[], None], *after: Any) -> Any:
        return self._launch("makes", body, *after)

    def sent(self, numbers: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(numbers)

    def computing(self, body: Callable[[], None]) -> None:
        """What is handed over to the computing stream."""
        self._launch("computes", body)

    def wait(self, event: Any) -> None:
        self._streams["computes"].append(event)
        self.go_on()

    def computed(self) -> Any:
        return self._launch("computes", lambda: None)

    def _launch(self, name: str, body: Callable[[], None], *after: Event) -> Event:
        over = Event()
        self._streams[name] += [*after, (body, over)]
        self.go_on()
        return over

    def go_on(self) -> None:
        """As far as they like."""
        while (able := self._able()) and (name := self._choose(able)) is not None:
            self._step(name)

    def drain(self) -> None:
        """To the end of all of them."""
        while able := self._able():
            self._step(self._choose(able) or able[0])
        assert not any(self._streams.values()), "a stream waits for what never comes"

    def _able(self) -> list[str]:
        for some in self._streams.values():
            while some and isinstance(some[0], Event) and some[0].over:
                some.popleft()
        return [name for name, some in self._streams.items() if some and not isinstance(some[0], Event)]

    def _step(self, name: str) -> None:
        body, over = self._streams[name].popleft()
        body()
        over.over = True
        self.done[name] += 1
