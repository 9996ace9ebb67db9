"""Which models are in memory, and which request goes to one when: a state machine, pure and without a clock of its own.

The rule, in the order in which it is applied to the line of waiting requests, oldest first:

1. A request for a model that is there goes to it at once.
2. The oldest request for a model that is not there has the claim: if its model fits, it is loaded; if not, others have
   to go. Nobody behind it has a claim, so what is asked for first is loaded first, however small the next one is.
3. Models without work go at once, the least recently used first. A model with work keeps its turn: for `turn` seconds
   from when it was ready or when the claim came, whichever is later, it goes on taking requests. Then new ones wait,
   and when the last answer has ended, it goes. An answer is never cut.

So a model that is asked for all the time cannot keep another out for longer than its turn and its longest answer, and
two models that are asked for in turns do not push each other out for every request.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Ticket = Hashable
"""Stands for a request."""


class Phase(StrEnum):
    """Where a model is. All but the first take its memory."""

    ASLEEP = "asleep"
    LOADING = "loading"
    READY = "ready"
    ENDING = "ending"  # told to go, and not gone yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One model.

    Attributes:
        name: of it.
        size: what it takes, in the unit of the line's `room`.
        idle: seconds without a request after which it goes; None never.
        fixed: it is always there, and whoever answers for it deals with its loading.
        early: it is loaded at the start.
    """

    name: str
    size: int = 0
    idle: float | None = None
    fixed: bool = False
    early: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Start loading this model; `Line.loaded` or `Line.failed` says what came of it."""

    model: str


@dataclass(frozen=True, slots=True)
class Unload:
    """End this model, which has nothing to do; `Line.gone` says that it has gone."""

    model: str


@dataclass(frozen=True, slots=True)
class Admit:
    """This request may use its model, until `Line.leave`."""

    ticket: Ticket


Action = Load | Unload | Admit


@dataclass(slots=True)
class _Model:
    spec: Spec
    phase: Phase = Phase.ASLEEP
    ready: float = -math.inf  # when it became so
    admitted: float = -math.inf  # when it got its last request
    used: float = -math.inf  # when it last had something to do
    wanted: bool = False  # to be loaded without a request
    leaving: bool = False  # to go as soon as it has no work
    failures: int = 0  # in a row
    running: set[Ticket] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Waiting:
    model: str
    since: float


class Line:
    """All models, and the requests that wait or use one. Times are seconds of any clock that never goes back."""

    def __init__(
        self, models: Sequence[Spec], *, most: int | None = None, room: int | None = None, turn: float = 10.0
    ) -> None:
        """Begin with an empty line.

        Args:
            models: all there are.
            most: how many may be in memory at a time; None all.
            room: what all that are in memory may take together; None has no limit. A model alone always fits.
            turn: seconds that a model with work keeps its place.
        """
        self._models = {spec.name: _Model(spec) for spec in models}
        self._most, self._room, self._turn = most or len(models), room, turn
        self._line: dict[Ticket, _Waiting] = {}
        self._due = math.inf
        for model in self._models.values():
            model.wanted = model.spec.early
            if model.spec.fixed:
                model.phase = Phase.READY

    # ---- what happens

    def want(self, ticket: Ticket, model: str, now: float) -> None:
        """A request comes."""
        assert ticket not in self._line, "a ticket is for one request"
        self._line[ticket] = _Waiting(model, now)

    def leave(self, ticket: Ticket, now: float) -> None:
        """A request has its answer, or does not want one any more."""
        self._line.pop(ticket, None)
        for model in self._models.values():
            if ticket in model.running:
                model.running.remove(ticket)
                model.used = now

    def loaded(self, name: str, now: float) -> None:
        """A model that was being loaded is there."""
        model = self._models[name]
        assert model.phase is Phase.LOADING, model
        model.phase, model.failures, model.wanted = Phase.READY, 0, False
        model.ready = model.used = now

    def failed(self, name: str) -> list[Ticket]:
        """A model that was being loaded cannot be; returns the requests that waited for it, which leave the line."""
        model = self._models[name]
        assert model.phase is Phase.LOADING, model
        model.phase, model.wanted = Phase.ASLEEP, False
        model.failures += 1
        lost = [ticket for ticket, waiting in self._line.items() if waiting.model == name]
        for ticket in lost:
            del self._line[ticket]
        return lost

    def gone(self, name: str) -> None:
        """A model has gone, whether it was told to or not. Requests that use it leave by themselves."""
        self._models[name].phase, self._models[name].leaving = Phase.ASLEEP, False

    def release(self, name: str) -> None:
        """A model is not needed any more: it takes no new requests and goes when its last answer has ended.

        Requests that come meanwhile wait for it to be loaded again.
        """
        model = self._models[name]
        assert model.phase is Phase.READY, model
        assert not model.spec.fixed, "it is always there"
        model.leaving = True

    # ---- what is to be done

    def step(self, now: float) -> list[Action]:
        """What is to be done now. It counts as begun."""
        self._due = math.inf
        actions: list[Action] = []
        claimed = False
        closed: set[str] = set()
        for name, model in self._models.items():
            if model.wanted and model.phase is Phase.ASLEEP and self._fits(name):
                actions.append(self._load(name))
        actions += self._released(closed)
        for ticket, waiting in list(self._line.items()):
            model = self._models[waiting.model]
            if model.phase is Phase.READY and waiting.model not in closed:
                del self._line[ticket]
                model.running.add(ticket)
                model.admitted = model.used = now
                actions.append(Admit(ticket))
            elif model.phase is Phase.ENDING:
                claimed = True  # it comes back before anything behind it is loaded
            elif model.phase is Phase.ASLEEP and not claimed:
                if self._fits(waiting.model):
                    actions.append(self._load(waiting.model))
                    continue
                claimed = True
                for name in self._victims(waiting.model):
                    actions += self._pushed(name, waiting.since, now, closed)
        actions += self._idle(now)
        return actions

    @property
    def due(self) -> float:
        """When there may be something to do though nothing happens; as of the last step."""
        return self._due

    # ---- how things are

    def phase(self, name: str) -> Phase:
        """Where a model is."""
        return self._models[name].phase

    def leaving(self, name: str) -> bool:
        """Whether a model that is there goes as soon as it has no work."""
        return self._models[name].leaving

    def waiting(self, name: str) -> int:
        """Requests that wait for a model."""
        return sum(waiting.model == name for waiting in self._line.values())

    def running(self, name: str) -> int:
        """Requests that use a model."""
        return len(self._models[name].running)

    def failures(self, name: str) -> int:
        """How often in a row it could not be loaded."""
        return self._models[name].failures

    def fits(self, name: str) -> bool:
        """Whether a model is there, or could be loaded without pushing another out."""
        return self._models[name].phase is not Phase.ASLEEP or self._fits(name)

    # ---- inside

    def _load(self, name: str) -> Load:
        self._models[name].phase = Phase.LOADING
        return Load(name)

    def _unload(self, name: str) -> Unload:
        self._models[name].phase, self._models[name].leaving = Phase.ENDING, False
        return Unload(name)

    def _fits(self, name: str, gone: Iterable[str] = ()) -> bool:
        """Whether a model fits beside what takes memory, but for those that are gone by then."""
        there = [m.spec for m in self._models.values() if m.phase is not Phase.ASLEEP and m.spec.name not in gone]
        if not there:
            return True
        taken = sum(spec.size for spec in there) + self._models[name].spec.size
        return len(there) < self._most and (self._room is None or taken <= self._room)

    def _victims(self, name: str) -> list[str]:
        """Those that have to go for a model: without work first, then the least recently used; no more than needed."""
        ending = [m.spec.name for m in self._models.values() if m.phase is Phase.ENDING]
        able = [m for m in self._models.values() if m.phase is Phase.READY and not m.spec.fixed]
        # Of those with work, a finished answer must not make one younger: the one that was closed stays the next.
        able.sort(key=lambda m: (bool(m.running), m.admitted if m.running else m.used))
        chosen: list[str] = []
        for model in able:
            if self._fits(name, [*ending, *chosen]):
                break
            chosen.append(model.spec.name)
        return chosen

    def _pushed(self, name: str, since: float, now: float, closed: set[str]) -> list[Action]:
        """A model has to go: at once without work, else it is closed once its turn is over."""
        model = self._models[name]
        if not model.running:
            return [self._unload(name)]
        end = max(since, model.ready) + self._turn
        if now >= end:
            closed.add(name)
        else:
            self._due = min(self._due, end)
        return []

    def _released(self, closed: set[str]) -> list[Action]:
        """Those that are to go take nothing more, and go once they have nothing to do."""
        leaving = [model for model in self._models.values() if model.leaving]
        closed.update(model.spec.name for model in leaving)
        return [self._unload(model.spec.name) for model in leaving if not model.running]

    def _idle(self, now: float) -> list[Action]:
        actions: list[Action] = []
        asked = {waiting.model for waiting in self._line.values()}
        for name, model in self._models.items():
            idle = model.spec.idle
            if idle is None or model.phase is not Phase.READY or model.running or name in asked or model.spec.fixed:
                continue
            if now >= model.used + idle:
                actions.append(self._unload(name))
            else:
                self._due = min(self._due, model.used + idle)
        return actions
