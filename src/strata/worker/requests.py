"""Requests that a client has taken and not finished."""

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from strata.errors import StrataError
from strata.worker.mailbox import Mailbox
from strata.worker.messages import Finished, Submit, Usage


class Stage(Enum):
    """How far a request is."""

    WAITING = auto()  # no engine has it
    SENT = auto()  # an engine has it, and has said nothing of it yet
    STARTED = auto()  # an engine reads or answers it


@dataclass(eq=False, slots=True)
class Entry:
    """One request.

    Attributes:
        request: as it was submitted.
        mailbox: where its events go.
        stage: how far it is.
        name: what the engine calls it, see `Requests.sent`; empty while no engine has it.
        lost: engines that died while they had it unstarted.
        submitted: time of submission, monotonic seconds.
    """

    request: Submit
    mailbox: Mailbox = field(default_factory=Mailbox)
    stage: Stage = Stage.WAITING
    name: str = ""
    lost: int = 0
    submitted: float = field(default_factory=time.monotonic)

    def left(self, now: float) -> float | None:
        """Seconds until its deadline; None without one."""
        return None if self.request.timeout is None else self.request.timeout - (now - self.submitted)

    def order(self, now: float) -> Submit:
        """What an engine is told now: the time that has passed is no longer there."""
        left = self.left(now)
        timeout = None if left is None else max(left, 0.001)
        return msgspec.structs.replace(self.request, id=self.name, timeout=timeout)


class Requests:
    """All of them by id, oldest first. The supervisor's lock guards it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._names: dict[str, Entry | None] = {}  # all that an engine has; None of those that nobody reads any more

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def add(self, entry: Entry) -> None:
        """Take one."""
        self._entries[entry.request.id] = entry

    def get(self, name: str) -> Entry | None:
        """The request of this name, if it is under way."""
        return self._entries.get(name)

    def sent(self, entry: Entry) -> None:
        """An engine gets one.

        Its name there is its id, unless an earlier request of that id, which nobody reads any more, is still ending:
        what is on its way from that one must not be taken for an answer to this one.
        """
        entry.stage, entry.name = Stage.SENT, unused(entry.request.id, self._names)
        self._names[entry.name] = entry

    def heard(self, name: str, *, last: bool) -> Entry | None:
        """The request that the engine speaks of, if somebody reads it; after the last word its name is free."""
        return self._names.pop(name, None) if last else self._names.get(name)

    def remove(self, name: str) -> Entry | None:
        """Forget one. The engine may have it still."""
        entry = self._entries.pop(name, None)
        if entry is not None and self._names.get(entry.name) is entry:
            self._names[entry.name] = None
        return entry

    def count(self, *stages: Stage) -> int:
        """How many are at one of these stages."""
        return sum(entry.stage in stages for entry in self._entries.values())

    def at(self, stage: Stage) -> list[Entry]:
        """Those at a stage, oldest first."""
        return [entry for entry in self._entries.values() if entry.stage is stage]

    def finish(self, entry: Entry, reason: str) -> None:
        """End one that no engine has begun."""
        self.remove(entry.request.id)
        waited = time.monotonic() - entry.submitted
        entry.mailbox.put(Finished(entry.request.id, reason, Usage(len(entry.request.prompt), waiting_s=waited)))

    def fail(self, error: Callable[[], StrataError], *stages: Stage) -> None:
        """End all at these stages with an error, made anew for each."""
        for entry in self:
            if entry.stage in stages:
                self.remove(entry.request.id)
                entry.mailbox.fail(error())

    def engine_died(self, error: Callable[[], StrataError]) -> None:
        """What was begun fails; what was not goes back to waiting, once: a second death is taken for its fault."""
        self.fail(error, Stage.STARTED)
        self._names.clear()
        for entry in self.at(Stage.SENT):
            entry.lost += 1
            if entry.lost > 1:
                self.remove(entry.request.id)
                entry.mailbox.fail(error())
            else:
                entry.stage, entry.name = Stage.WAITING, ""


def unused(wanted: str, taken: Container[str]) -> str:
    """A name that is not taken: the wanted one, or one that is like it."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted} ({number})"
    return name
