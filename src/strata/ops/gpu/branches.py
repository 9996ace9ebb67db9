"""Branches of a captured graph: work that does not wait for what is launched before it, only for what it reads.

Outside a capture everything runs in the order of the calls. What a branch reads must outlive its end, which arguments
of a caller that joins it do. Joining costs: a launch behind two others cannot start before both have ended.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from strata.ops.streams import stream

T = TypeVar("T")


class Branches:
    """The streams of branches, made when first asked for.

    Args:
        graphs: there are captures; without, branches are none.
    """

    def __init__(self, *, graphs: bool) -> None:
        self._graphs = graphs
        self._streams: dict[Hashable, torch.cuda.Stream] = {}
        self._start: torch.cuda.Event | None = None

    def begin(
        self, key: Hashable, body: Callable[[], T], *, early: bool = False, urgent: bool = False
    ) -> Callable[[], T]:
        """Start something on a branch.

        Args:
            key: of the branch, which has been joined since it was used before.
            body: what to run.
            early: it waits for what was launched before `mark` alone.
            urgent: its programs start before those of other branches that wait for room, too.

        Returns:
            To call where the result is needed: joins the branch.
        """
        if not self._graphs or not torch.cuda.is_current_stream_capturing():
            result = body()
            return lambda: result
        if key not in self._streams:
            self._streams[key] = stream(f"branch {key}", urgent=urgent)
        branch = self._streams[key]
        if early and self._start is not None:
            branch.wait_event(self._start)
        else:
            branch.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(branch):
            result = body()

        def join() -> T:
            torch.cuda.current_stream().wait_stream(branch)
            return result

        return join

    def point(self) -> Callable[[], None]:
        """What has been launched where this is called: to call on another branch, which then waits for it."""
        if not self._graphs or not torch.cuda.is_current_stream_capturing():
            return _nothing
        event = torch.cuda.Event()
        event.record()
        return lambda: torch.cuda.current_stream().wait_event(event)

    def mark(self) -> None:
        """What early branches wait for has been launched."""
        if self._graphs and torch.cuda.is_current_stream_capturing():
            self._start = torch.cuda.Event()
            self._start.record()

    def forget(self) -> None:
        """Another capture follows: early branches wait for what is launched where they begin."""
        self._start = None

    def beside(self, *bodies: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Run bodies that do not depend on one another, the first where it is called, the others on branches."""
        others = [self.begin(i, body) for i, body in enumerate(bodies[1:])]
        first = bodies[0]()
        return first, *(join() for join in others)


def _nothing() -> None:
    """There is nothing to wait for."""
