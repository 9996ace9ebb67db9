"""Memory and processors, as the system tells them."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from strata.loading import ram
from strata.server.monitor.snapshot import Process, Ram


def memory() -> Ram:
    """Main memory now."""
    found = ram.measure()
    return Ram(total=found.total, available=found.available, limit=found.limit)


APART = 0.4
"""Seconds between two looks that say how busy a process was; the system counts in hundredths."""


@dataclass(slots=True)
class _Seen:
    """A process at an earlier look."""

    process: psutil.Process
    when: float = 0.0
    used: float = 0.0
    cpu: float | None = None


class Processes:
    """Looks at processes again and again; how busy they are is what happened between two looks."""

    def __init__(self) -> None:
        self._known: dict[int, _Seen] = {}

    def look(self, engines: Iterable[tuple[str, int | None]]) -> tuple[Process, ...]:
        """The server's process, then those of the engines; those that are gone are left out.

        Args:
            engines: names and process ids; None where there is no process.
        """
        wanted = [("server", "server", os.getpid())]
        wanted += [("engine", name, pid) for name, pid in engines if pid is not None]
        pids = {pid for *_, pid in wanted}
        self._known = {pid: seen for pid, seen in self._known.items() if pid in pids}
        return tuple(found for one in wanted if (found := self._one(*one)))

    def _one(self, kind: str, name: str, pid: int) -> Process | None:
        try:
            seen = self._known.get(pid) or _Seen(psutil.Process(pid))
            with seen.process.oneshot():
                resident, times, now = seen.process.memory_info().rss, seen.process.cpu_times(), time.monotonic()
        except psutil.Error:
            return None
        self._known[pid] = seen
        used = times.user + times.system
        if now - seen.when >= APART:
            seen.cpu = max(0.0, (used - seen.used) / (now - seen.when)) if seen.when else None
            seen.when, seen.used = now, used
        return Process(kind=kind, name=name, pid=pid, resident=resident, cpu=seen.cpu)
