"""What the last windows did and how long it took: a ring of records, and its export for Chrome's and Perfetto's viewer.

Noting a window costs a few microseconds, whatever its size; tests/engine/test_trace.py holds it below 1% of a window
of Pebble.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from strata.engine.totals import Totals
from strata.engine.watch import Watch

PHASES = ("read", "draft", "run", "verify", "commit")
"""Parts of a window, in order; a prompt pass has `read`, and `verify` where it ends the prompt."""

WAIT = "wait"
"""What lies between two windows while there is work: messages, what is kept, other programs."""


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """One window, or one pass over a prompt.

    Attributes:
        when: its beginning in nanoseconds on the process's monotonic performance clock.
        rows: rows computed.
        conversations: whose rows they are.
        drafted: tokens guessed, by source.
        accepted: guesses that were right.
        hits: experts visited, by where they were; empty where they have one place.
        misses: of these, those that were not on the GPU, by who computed them.
        read_us: microseconds reading a prompt.
        draft_us: microseconds guessing.
        run_us: microseconds of the forward pass and its logits.
        verify_us: microseconds choosing.
        commit_us: microseconds committing.
        wait_us: microseconds from the end of the window before to this one's beginning, see `Trace.waited`.
        tokens: tokens that were chosen.
        host_wait_us: microseconds in all from layers' messages to the host to its answers, whatever the GPU computed
            meanwhile.
        disk_wait_us: microseconds in which the host waited for experts that were read from the disk.
        fetched: rows of predictions that the host had to read, though a device looked at them.
        layers: microseconds from the beginning of `run` to that of each layer, and to the end of the last; empty where
            the device does not say it.
    """

    when: int
    rows: int
    conversations: int
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: int = 0
    hits: Mapping[str, int] = field(default_factory=dict)
    misses: Mapping[str, int] = field(default_factory=dict)
    read_us: float = 0.0
    draft_us: float = 0.0
    run_us: float = 0.0
    verify_us: float = 0.0
    commit_us: float = 0.0
    wait_us: float = 0.0
    tokens: int = 0
    host_wait_us: float = 0.0
    disk_wait_us: float = 0.0
    fetched: int = 0
    layers: Sequence[float] = ()

    @property
    def phases(self) -> dict[str, float]:
        """Microseconds of each phase that took place."""
        times = {phase: getattr(self, f"{phase}_us") for phase in PHASES}
        return {phase: us for phase, us in times.items() if us}


class Trace:
    """The last windows, oldest first, and the sums of all.

    Attributes:
        count: windows and passes noted.
        totals: their sums.
        watch: whether the card has the memory that it says it has.
    """

    def __init__(self, capacity: int = 4096) -> None:
        """Keep so many; older ones are forgotten."""
        self._records: deque[WindowRecord] = deque(maxlen=capacity)
        self._ended: int | None = None  # when the last one did; None if there was nothing to do since
        self.count = 0
        self.totals = Totals()
        self.watch = Watch()

    def add(self, record: WindowRecord) -> None:
        """Note a window."""
        self._records.append(record)
        self.count += 1
        us = record.read_us + record.draft_us + record.run_us + record.verify_us + record.commit_us
        self._ended = record.when + int(us * 1e3)
        self._sum(record)

    def idle(self) -> None:
        """There is nothing to do: the time until the next window is nobody's wait."""
        self._ended = None

    def waited(self, now: int) -> float:
        """Microseconds since the last window's end (nanoseconds of its clock), during which there was work."""
        return 0.0 if self._ended is None else max(0, now - self._ended) / 1e3

    def _sum(self, record: WindowRecord) -> None:
        totals, us = self.totals, self.totals.microseconds
        totals.rows += record.rows
        if record.read_us:
            totals.passes += 1
            us["read"] += record.read_us
        else:
            totals.windows += 1
            us["draft"] += record.draft_us
            us["run"] += record.run_us
            us["commit"] += record.commit_us
        us["verify"] += record.verify_us
        us[WAIT] += record.wait_us
        totals.tokens += record.tokens
        if record.drafted:
            totals.guessed(record.drafted, record.accepted)
        if record.hits:
            totals.hits.update(record.hits)
            self.watch.seen(record)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> tuple[WindowRecord, ...]:
        """Those kept, oldest first."""
        return tuple(self._records)

    def events(self, process: str = "strata engine", last: int | None = None) -> dict[str, Any]:
        """In Chrome's trace event format: one complete event a window, its phases below it, times in microseconds.

        Args:
            process: a name for it.
            last: only so many of the last windows; None is all.
        """
        found: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": process}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "windows"}},
        ]
        skipped = 0 if last is None else max(0, len(self._records) - last)
        for record in islice(self._records, skipped, None):
            start, phases = record.when / 1e3, record.phases
            arguments: dict[str, Any] = {
                "rows": record.rows,
                "conversations": record.conversations,
                "drafted": dict(record.drafted),
                "accepted": record.accepted,
                "tokens": record.tokens,
                "hits": dict(record.hits),
                "misses": dict(record.misses),
                "host_wait_us": record.host_wait_us,
                "disk_wait_us": record.disk_wait_us,
                "fetched": record.fetched,
            }
            if record.layers:
                arguments["layers"] = [round(us, 1) for us in record.layers]
            name = "prompt pass" if record.read_us else "window"
            place = {"ph": "X", "pid": 1, "tid": 1, "cat": "engine"}
            if record.wait_us:
                found.append({"name": WAIT, "ts": start - record.wait_us, "dur": record.wait_us} | place)
            found.append({"name": name, "ts": start, "dur": sum(phases.values()), "args": arguments} | place)
            for phase, us in phases.items():
                found.append({"name": phase, "ts": start, "dur": us} | place)
                start += us
        return {"traceEvents": found, "displayTimeUnit": "ms"}

    def export(self, last: int | None = None) -> str:
        """The events as a JSON document."""
        return json.dumps(self.events(last=last))
