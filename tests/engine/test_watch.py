"""The sign of over-committed video memory in the windows of an engine: said once, shown as long as it lasts, cheap."""

import logging
import time

import pytest

from strata.engine.trace import Trace, WindowRecord
from strata.memory.budget.overcommit import SPAN


def window(hits: float, seconds: float, rows: int = 1, when: int = 0) -> WindowRecord:
    found = {"vram": round(480 * hits), "ram": 480 - round(480 * hits)}
    return WindowRecord(when, rows, 1, hits=found, run_us=1e6 * seconds)


def feed(trace: Trace, hits: float, seconds: float, rows: int = 1, count: int = 2 * SPAN) -> None:
    for _ in range(count):
        trace.add(window(hits, seconds, rows))


def test_more_hits_and_slower_windows_are_told_once(caplog) -> None:
    trace = Trace()
    with caplog.at_level(logging.WARNING, "strata.engine"):
        feed(trace, 0.6, 0.020)
        assert trace.watch.wrong == ""
        feed(trace, 0.9, 0.100)
        assert trace.watch.wrong.startswith("video memory seems to be over-committed: 90%")
        feed(trace, 0.6, 0.020)
        assert trace.watch.wrong == "", "it is over"
        feed(trace, 0.9, 0.100)
        assert trace.watch.wrong
    assert len(caplog.records) == 1
    assert trace.watch.warnings == 2


def test_windows_of_other_sizes_are_another_matter() -> None:
    trace = Trace()
    feed(trace, 0.7, 0.020, rows=1)
    feed(trace, 0.7, 0.060, rows=4)
    assert trace.watch.wrong == ""
    feed(trace, 0.8, 0.200, rows=4)
    assert trace.watch.wrong


def test_another_share_of_the_memory_begins_anew() -> None:
    trace = Trace()
    feed(trace, 0.7, 0.020)
    trace.watch.reset()
    feed(trace, 0.8, 0.100)
    assert trace.watch.wrong == ""


@pytest.mark.parametrize(
    "record",
    [
        WindowRecord(0, 1, 1, run_us=20_000.0),
        WindowRecord(0, 512, 1, hits={"vram": 100}, read_us=20_000.0),
        WindowRecord(0, 1, 1, hits={"vram": 0, "ram": 0}, run_us=20_000.0),
    ],
    ids=["one place", "a prompt", "nothing visited"],
)
def test_what_is_not_watched(record) -> None:
    trace = Trace()
    for _ in range(4 * SPAN):
        trace.add(record)
    assert not trace.watch._detectors


def test_it_costs_next_to_nothing() -> None:
    """The least of many rounds, for others may be at work; a window of a large model takes thousands of times that."""
    trace, record = Trace(), window(0.7, 0.02)
    rounds = []
    for _ in range(30):
        began = time.perf_counter()
        for _ in range(100):
            trace.watch.seen(record)
        rounds.append((time.perf_counter() - began) / 100)
    assert min(rounds) < 50e-6
