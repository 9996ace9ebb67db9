"""Launches that are captured once and repeated from then on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from strata.ops.streams import recorded


class Recording:
    """Graphs that follow one another.

    Handing a graph over takes the host a tenth of a microsecond for each launch, and the device begins when it has all
    of it. In parts, it works on the first while it is given the next.
    """

    def __init__(self, beside: "Recording | None" = None) -> None:
        """An empty record; whatever it works in may be overwritten by a record `beside` it, and the reverse."""
        self._memory: Any = None if beside is None else beside.memory
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._steps: list[Callable[[], None]] = []
        self._capture: torch.cuda.graph | None = None

    @property
    def memory(self) -> Any:
        """What it works in."""
        return self._graphs[0].pool()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Record what is launched inside, which does not run."""
        self._capture = recorded(torch.cuda.CUDAGraph(), self._memory)
        with self._capture:
            yield
        self._keep(self._capture.cuda_graph)
        self._capture = None

    def cut(self) -> None:
        """Inside `capture`: what follows is the next part. No other stream may be in use."""
        assert self._capture is not None
        done = self._capture.cuda_graph
        done.capture_end()
        self._keep(done)
        following = torch.cuda.CUDAGraph()
        following.capture_begin(pool=done.pool())
        self._capture.cuda_graph = following

    def host(self, action: Callable[[], None]) -> None:
        """Inside `capture`, as `cut`: between the parts the host does something, each time; not now."""
        self.cut()
        self._steps.append(action)

    def _keep(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graphs.append(graph)
        self._steps.append(graph.replay)

    def replay(self) -> None:
        """Run it all again."""
        for step in self._steps:
            step()
