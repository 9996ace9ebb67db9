"""What `strata bench` says of experts in tiers, from a trace as the engine writes it."""

from strata.cli.bench.met import as_text, met
from strata.engine.trace import Trace, WindowRecord


def test_windows_are_summed_by_their_rows():
    trace = Trace()
    for wait in (100.0, 300.0):
        hits, misses = {"vram": 30, "ram": 10}, {"link": 4, "host": 6}
        trace.add(WindowRecord(0, 1, 1, {}, 0, hits, misses, run_us=1.0, host_wait_us=wait))
    trace.add(WindowRecord(0, 4, 1, {"head": 3}, 2, {"vram": 90, "ram": 10}, {"link": 10, "host": 0}, run_us=1.0))
    trace.add(WindowRecord(0, 64, 1, read_us=5.0))
    one, four = met(trace.export().encode())
    assert (one.rows, one.windows, one.experts, one.vram, one.link, one.host) == (1, 2, 80, 60, 8, 12)
    assert one.shown() | {"hit_rate": 0.75, "union": 40.0, "wait_us_each": 200.0} == one.shown()
    assert (four.rows, four.shown()["hit_rate"]) == (4, 0.9)
    shown = as_text([one, four]).splitlines()
    assert shown[0].split()[:2] == ["Rows", "Windows"]
    assert "75.0%" in shown[-2]
    assert "90.0%" in shown[-1]


def test_nothing_is_said_where_experts_have_one_place():
    trace = Trace()
    trace.add(WindowRecord(0, 1, 1, run_us=1.0))
    assert met(trace.export().encode()) == []
    assert as_text([]) == ""
