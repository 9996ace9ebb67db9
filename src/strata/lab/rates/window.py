"""What a model's windows and draft steps take: answers with as many guesses as are wanted, right or wrong."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from strata.engine import Request, Sampling
from strata.engine.drafting.drafter import Guesses
from strata.engine.drafting.options import DEEPEST, Drafting
from strata.engine.generation import Generation
from strata.engine.window import step
from strata.lab.rates.rounds import Pace, Sample

if TYPE_CHECKING:
    from strata.model import Network, State

PROMPT = 64
"""Tokens behind which windows stand, if the context has room for them."""

STEPS = 4
"""Draft steps of a chain that is timed."""


@dataclass(frozen=True, slots=True)
class Windows:
    """What was measured.

    Attributes:
        seconds: of a window by rows.
        misses: experts that a window missed by rows; empty where all have one place.
        step: seconds of a step of the draft head; None without one.
    """

    seconds: dict[int, Sample] = field(default_factory=dict)
    misses: dict[int, Sample] = field(default_factory=dict)
    step: Sample | None = None


class _Probe:
    """A drafter that guesses as many tokens as it is told, and remembers how long the window took."""

    def __init__(self, clock: Callable[[], float], vocabulary: int) -> None:
        self.wanted = 0
        self.seconds = 0.0
        self.steps: list[float] = []
        self.head = False
        self._clock = clock
        self._vocabulary = vocabulary
        self._network: Network | None = None

    def heed(self, network: "Network") -> None:
        """Time the draft head as well."""
        self._network = network

    def guess(self, state: "State", tokens: Sequence[int], most: int) -> Guesses:
        """See `strata.engine.drafting.drafter.Drafter`."""
        if self.head and self._network is not None and most >= STEPS:
            began = self._clock()
            _, steps = self._network.guess(state, tokens[-1], STEPS, 0.0)
            if steps:
                self.steps.append((self._clock() - began) / steps)
        count = min(self.wanted, most)
        return Guesses(tuple((tokens[-1] + 1 + i) % self._vocabulary for i in range(count)), "lookup")

    def learn(self, guesses: int, accepted: int, seconds: float) -> None:  # noqa: ARG002  # the protocol's names
        """See there."""
        self.seconds = seconds


def windows(network: "Network", pace: Pace, told: Callable[[int, int], None] = lambda *_: None) -> Windows:
    """Measure windows of 1 to 8 rows behind a short text, and steps of the draft head.

    Args:
        network: of a loaded model; conversations it has are left alone.
        pace: how often.
        told: called with (windows measured, windows to measure).

    Raises:
        StoppedError: somebody asked to stop.
    """
    found = Windows()
    with torch.inference_mode():
        answer = _Answer(network, pace)
        most = min(DEEPEST + 1, (network.config.context - 2) // 2)
        total = most * (pace.rounds + 1) + pace.rounds + 1
        done = 0
        for rows in range(1, most + 1):
            misses: list[float] = []

            def once(rows: int = rows, misses: list[float] = misses) -> float:
                nonlocal done
                told(done, total)
                done += 1
                seconds = answer.window(rows)
                met = network.met()
                if met is not None:
                    misses.append(float(met.link + met.host))
                return seconds

            found.seconds[rows] = pace.taken(once)
            if misses:
                found.misses[rows] = Sample.of(misses[1:])
        if network.drafts:
            step = Sample.of([answer.draft() for _ in _turns(pace, answer)])
            return Windows(found.seconds, found.misses, step)
    return found


def _turns(pace: Pace, answer: "_Answer") -> Iterator[int]:
    answer.draft()  # the first compiles
    for turn in range(pace.rounds):
        pace.check()
        yield turn


class _Answer:
    """An answer that begins anew when the context is full."""

    def __init__(self, network: "Network", pace: Pace) -> None:
        self._network, self._pace = network, pace
        self._probe = _Probe(pace.clock, network.config.V)
        if network.drafts:
            self._probe.heed(network)
        self._going: Generation | None = None

    def window(self, rows: int) -> float:
        """Seconds of a window of so many rows, from its beginning to its commit."""
        self._probe.wanted, self._probe.seconds = rows - 1, 0.0
        while not self._probe.seconds:  # a new answer's first token comes with its prompt
            going = self._started(rows)
            step(self._network, [going])
            if going.finished is not None and going.finished.error:
                raise going.finished.error
        return self._probe.seconds

    def draft(self) -> float:
        """Seconds of a step of the draft head."""
        self._probe.head = True
        try:
            self._probe.steps.clear()
            while not self._probe.steps:
                self.window(1)
            return self._probe.steps[-1]
        finally:
            self._probe.head = False

    def _started(self, rows: int) -> Generation:
        """The answer, or a new one if the context has no room for a window of so many rows."""
        context = self._network.config.context
        going = self._going
        if going is not None and going.finished is None and going.state.length + rows + STEPS + 1 < context:
            return going
        self._pace.check()
        ids = tuple(7 * i % self._network.config.V for i in range(5, 5 + min(PROMPT, max(1, context // 4))))
        drafting = Drafting(depth=DEEPEST, head=self._network.drafts)
        request = Request("", ids, Sampling(temperature=0.0), frozenset(), None, drafting)
        self._going = going = Generation(self._network, self._network.new_state(), request, drafter=self._probe)
        while going.reading:
            going.read()
        return going
