"""Operations that tell a recorder what their routers choose: the CPU's, and a GPU's with tiers or without."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from strata.lab.routing.recorder import Recorder
from strata.model import Network
from strata.model.decision import Decision, Greedy

if TYPE_CHECKING:
    from strata.model.ops import Ops


def listening(network: Network, recorder: Recorder) -> "tuple[Network, Listening]":
    """The same network, heard; and who has to be told when it is over (`Listening.flush`).

    What a GPU has recorded of its own launches is not repeated any more, for nobody hears repetitions; texts stay the
    same. Only windows are heard: what prompts visit tells nothing of a cache that windows fill.
    """
    eager = getattr(network.ops, "eager", None)
    if eager is not None:
        eager()
    ops = Listening(network.ops, recorder)
    return replace(network, ops=cast("Ops", ops)), ops


class Listening:
    """Delegates every operation; what routers choose in a window goes to a recorder once it is known what was kept.

    Args:
        ops: of the device.
        recorder: of this model's layers.
    """

    def __init__(self, ops: Any, recorder: Recorder) -> None:
        self._ops, self._recorder = ops, recorder
        self._listens = False
        self._chosen: list[Any] = []
        self._rows: list[tuple[Any, int]] = []  # conversations of the window and their rows, in order
        self._kept: dict[int, int] = {}
        self._numbers: dict[int, tuple[int, Any]] = {}  # with the memory itself, so that no other has its id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def begin(self, segments: Sequence[Any], *, window: bool) -> Any:
        """See `Ops.begin`."""
        self.flush()
        self._listens = window
        self._rows = [(segment.memory, len(segment.ids)) for segment in segments] if window else []
        return self._ops.begin(segments, window=window)

    def over(self, batch: Any) -> Any:
        """See `Ops.over`."""
        ops = self._ops.over(batch)
        return _Heard(ops, self._hear) if self._listens else ops

    def commit(self, state: Any, done: Any, n: int) -> None:
        """See `Ops.commit`."""
        self._kept[id(state)] = n
        self._ops.commit(state, done, n)

    def decide(self, done: Sequence[tuple[Any, Any]], rules: Sequence[Greedy]) -> list[Decision] | None:
        """See `Ops.decide`; nothing is launched ahead, where nobody would hear it."""
        found: list[Decision] | None = self._ops.decide(done, [replace(rule, goes_on=False) for rule in rules])
        self._decided(done, found)
        return found

    def draw(self, done: Sequence[tuple[Any, Any]], rules: Sequence[Any]) -> Any:
        """See `Ops.draw`."""
        found = self._ops.draw(done, rules)
        self._decided(done, found)
        return found

    def flush(self) -> None:
        """The window is over and its rows are committed, as far as they will be: it is recorded.

        Raises:
            TraceError: it cannot be written.
        """
        chosen, rows, kept = self._chosen, self._rows, self._kept
        self._chosen, self._rows, self._kept, self._listens = [], [], {}, False
        if not rows or not kept:
            return  # nothing, or one that was given up
        for number, experts in enumerate(chosen):
            self._recorder.layer(number, experts.cpu().numpy())
        conversations = np.concatenate([np.full(count, self._number(memory)) for memory, count in rows])
        flags = np.concatenate([np.arange(count) < kept.get(id(memory), 0) for memory, count in rows])
        self._recorder.window(conversations, flags)

    def _hear(self, experts: Any) -> None:
        self._chosen.append(experts)

    def _decided(self, done: Sequence[tuple[Any, Any]], found: Sequence[Any] | None) -> None:
        for (state, _), decision in zip(done, found or (), strict=False):
            if isinstance(decision, Decision):
                self._kept[id(state)] = len(decision.ids)

    def _number(self, memory: Any) -> int:
        number, _ = self._numbers.setdefault(id(memory), (len(self._numbers), memory))
        return number


class _Heard:
    """Operations of one window."""

    def __init__(self, ops: Any, hear: Callable[[Any], None]) -> None:
        self._ops, self._hear = ops, hear

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def route(self, m: Any, w: Any) -> Any:
        """See `Ops.route`."""
        found = self._ops.route(m, w)
        self._hear(found.experts)
        return found
