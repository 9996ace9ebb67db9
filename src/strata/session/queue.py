"""Who is read next: a bounded, fair queue. Pure, no torch and no clock of its own.

A request is queued, then its prompt is read in passes, then it decodes. Between two passes anybody may be chosen, so a
short prompt never waits behind a long one (case J04). Of all that have something to read the next is chosen by

1. priority, plus one for every `aging` seconds since it was last served: so nobody starves, and one who was served
   because of its age has no advantage from it any more after that one pass;
2. turns: the requests of a client have rising turns, and clients take turns however many requests each has;
3. the fewest tokens left to read;
4. the order of arrival.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum

from strata.errors import QueueFullError, RequestError

AGING = 2.0
"""Seconds without service that count as much as one step of priority."""

PRIORITIES = range(-100, 101)


class Stage(IntEnum):
    """How far a request has come."""

    QUEUED = 0
    READING = 1
    DECODING = 2


@dataclass(slots=True)
class Entry:
    """One request as the queue sees it.

    Attributes:
        id: its name.
        client: who takes turns with others; requests of one conversation or client share it.
        priority: higher first.
        work: tokens left to read.
        deadline: when it ends whatever happens; infinity for never.
        number: order of arrival.
        turn: one more than the client's request before, or the turn that everybody has reached.
        served: when it arrived or had its last pass.
        stage: how far it has come.
    """

    id: str
    client: str
    priority: int
    work: int
    deadline: float
    number: int
    turn: int
    served: float
    stage: Stage = Stage.QUEUED


class Queue:
    """All requests that are not finished. Times are seconds of any clock that never goes back."""

    def __init__(self, *, slots: int, bound: int, aging: float = AGING) -> None:
        """At most `slots` requests are read or decoded at a time, and at most `bound` more wait."""
        if slots < 1 or bound < 0 or not aging > 0:
            raise RequestError(f"a queue needs slots >= 1, bound >= 0 and aging > 0, not {slots}, {bound} and {aging}")
        self.slots = slots
        self.bound = bound
        self._aging = aging
        self._entries: dict[str, Entry] = {}
        self._arrived = 0
        self._turn = 0  # the latest turn of which a request was begun
        self._turns: dict[str, int] = {}  # of the latest request, by client with unfinished ones

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """In order of arrival."""
        return iter(list(self._entries.values()))

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def count(self, stage: Stage) -> int:
        """Requests of a stage."""
        return sum(entry.stage is stage for entry in self._entries.values())

    def add(
        self,
        name: str,
        now: float,
        *,
        work: int,
        client: str = "",
        priority: int = 0,
        timeout: float | None = None,
    ) -> Entry:
        """A request arrives.

        Args:
            name: its id, which no unfinished request has.
            now: the time.
            work: tokens it has to read.
            client: whoever it belongs to; an empty text stands for itself alone.
            priority: from -100 to 100, higher first.
            timeout: seconds until it ends; None for never.

        Raises:
            QueueFullError: as many wait as may wait (case J07).
            RequestError: a value is out of range, or the id is in use.
        """
        if name in self._entries:
            raise RequestError(f"a request with the id {name!r} is not finished yet; ids have to be unique")
        if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
            raise RequestError(f"priority must be an integer from -100 to 100, not {priority!r}")
        if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
            raise RequestError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        if len(self._entries) >= self.slots + self.bound:
            raise QueueFullError(running=self.slots, waiting=len(self._entries) - self.slots, bound=self.bound)
        deadline = math.inf if timeout is None else now + timeout
        turn = max(self._turn, self._turns.get(client, -1) + 1)
        if client:
            self._turns[client] = turn
        entry = Entry(name, client, priority, work, deadline, self._arrived, turn, now)
        self._arrived += 1
        self._entries[name] = entry
        return entry

    def choose(self, now: float, *, without: Collection[str] = ()) -> Entry | None:
        """Who is read next, queued or partly read; None if nobody can be.

        A queued one needs a free slot. Nothing changes; `served` says that the pass was made. Those in `without` have
        to wait.
        """
        free = self.count(Stage.READING) + self.count(Stage.DECODING) < self.slots
        able = [
            entry
            for entry in self._entries.values()
            if entry.id not in without and (entry.stage is Stage.READING or (free and entry.stage is Stage.QUEUED))
        ]
        return min(able, key=lambda entry: self._rank(entry, now), default=None)

    def served(self, name: str, now: float, work: int) -> None:
        """A pass was made for a request, and so many tokens are left; without any left it decodes."""
        entry = self._entries[name]
        entry.served, entry.work = now, work
        self._turn = max(self._turn, entry.turn)
        entry.stage = Stage.READING if work else Stage.DECODING

    def remove(self, name: str) -> Entry:
        """A request is finished, whatever its stage."""
        entry = self._entries.pop(name)
        if all(other.client != entry.client for other in self._entries.values()):
            self._turns.pop(entry.client, None)
        return entry

    def expired(self, now: float) -> list[str]:
        """Requests whose time is over, whatever their stage."""
        return [entry.id for entry in self._entries.values() if now >= entry.deadline]

    def _rank(self, entry: Entry, now: float) -> tuple[int, int, int, int]:
        level = entry.priority + int((now - entry.served) / self._aging)
        # All whose turn has come are equal: a long prompt that began early has no advantage.
        return -level, max(entry.turn, self._turn), entry.work, entry.number
