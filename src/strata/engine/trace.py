"""What the last windows did and how long it took: a ring of records, and its export for Chrome's and Perfetto's viewer.

Noting a window costs a few microseconds, whatever its size; tests/engine/test_trace.py holds it below 1% of a window
of Pebble.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PHASES = ("read", "draft", "run", "verify", "commit")
"""Parts of a window, in order; a prompt pass has `read`, and `verify` where it ends the prompt."""


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """One window, or one pass over a prompt.

    Attributes:
        when: its beginning in nanoseconds on the process's monotonic performance clock.
        rows: rows computed.
        conversations: whose rows they are.
        drafted: tokens guessed, by source.
        accepted: guesses that were right.
        hits: experts found, by tier; empty as long as there is one tier only.
        misses: likewise.
        read_us: microseconds reading a prompt.
        draft_us: microseconds guessing.
        run_us: microseconds of the forward pass and its logits.
        verify_us: microseconds choosing.
        commit_us: microseconds committing.
        fetched: rows of predictions that the host had to read, though a device looked at them.
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
    fetched: int = 0

    @property
    def phases(self) -> dict[str, float]:
        """Microseconds of each phase that took place."""
        times = {phase: getattr(self, f"{phase}_us") for phase in PHASES}
        return {phase: us for phase, us in times.items() if us}


class Trace:
    """The last windows, oldest first."""

    def __init__(self, capacity: int = 4096) -> None:
        """Keep so many; older ones are forgotten."""
        self._records: deque[WindowRecord] = deque(maxlen=capacity)
        self.count = 0

    def add(self, record: WindowRecord) -> None:
        """Note a window."""
        self._records.append(record)
        self.count += 1

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> tuple[WindowRecord, ...]:
        """Those kept, oldest first."""
        return tuple(self._records)

    def events(self, process: str = "strata engine") -> dict[str, Any]:
        """In Chrome's trace event format: one complete event a window, its phases below it, times in microseconds."""
        found: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": process}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "windows"}},
        ]
        for record in self._records:
            start, phases = record.when / 1e3, record.phases
            arguments = {
                "rows": record.rows,
                "conversations": record.conversations,
                "drafted": dict(record.drafted),
                "accepted": record.accepted,
                "hits": dict(record.hits),
                "misses": dict(record.misses),
                "fetched": record.fetched,
            }
            name = "prompt pass" if record.read_us else "window"
            place = {"ph": "X", "pid": 1, "tid": 1, "cat": "engine"}
            found.append({"name": name, "ts": start, "dur": sum(phases.values()), "args": arguments} | place)
            for phase, us in phases.items():
                found.append({"name": phase, "ts": start, "dur": us} | place)
                start += us
        return {"traceEvents": found, "displayTimeUnit": "ms"}

    def export(self) -> str:
        """The events as a JSON document."""
        return json.dumps(self.events())
