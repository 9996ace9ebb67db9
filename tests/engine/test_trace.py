"""The trace of windows."""

import json
import time
from random import Random

import pytest
import torch

import strata
from strata.engine import Generation, Request, Trace, WindowRecord, step
from support.network import network, prompt


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


class Two:
    """Guesses the same two tokens always."""

    def guess(self, state, tokens, most):  # noqa: ARG002  # the signature of a drafter
        return (3, 4)[:most], "two"

    def learn(self, guesses, accepted, seconds):
        pass


def test_windows_and_passes_are_noted():
    net, trace = network("other"), Trace()
    a = Generation(net, net.new_state(), Request("a", tuple(prompt("other", 100)), max_tokens=4), drafter=Two())
    b = Generation(net, net.new_state(), Request("b", tuple(prompt("other", 5)), max_tokens=9))
    for generation in (a, b):
        while generation.reading:
            generation.read(64, trace=trace)
    while not all(g.finished for g in (a, b)):
        step(net, [a, b], trace=trace)
    step(net, [a, b], trace=trace)  # nothing to do, nothing to note
    assert [(r.rows, r.conversations) for r in trace.records[:3]] == [(64, 1), (36, 1), (5, 1)]
    windows = trace.records[3:]
    assert [(r.rows, r.conversations) for r in windows] == [(2, 2)] * 3 + [(1, 1)] * 5
    assert all(r.run_us > 0 and r.verify_us > 0 and r.commit_us > 0 for r in windows)
    assert all(a.when < b.when for a, b in zip(trace.records, trace.records[1:], strict=False))
    alone = Generation(net, net.new_state(), Request("c", (5, 6, 7), max_tokens=20), drafter=Two())
    alone.read(trace=trace)
    while not alone.finished:
        step(net, [alone], trace=trace)
    usage = alone.finished.usage
    mine = trace.records[12:]
    assert usage.windows == len(mine)
    assert usage.drafted["two"] == sum(r.drafted.get("two", 0) for r in mine)
    assert usage.accepted["two"] == sum(r.accepted for r in mine)


def test_layers_lie_inside_their_window_one_after_another():
    net, trace = network("other"), Trace()
    a = Generation(net, net.new_state(), Request("a", tuple(prompt("other", 5)), max_tokens=6), drafter=Two())
    a.read(trace=trace)
    while not a.finished:
        step(net, [a], trace=trace)
    first, *windows = trace.records
    assert len(first.layers) == 0
    assert windows
    for record in windows:
        assert len(record.layers) == len(net.weights.layers) + 1
        assert list(record.layers) == sorted(record.layers)
        assert record.layers[0] > 0
        assert record.layers[-1] < record.run_us
    told = [e["args"]["layers"] for e in trace.events()["traceEvents"] if e["name"] == "window"]
    assert told == [[round(us, 1) for us in record.layers] for record in windows]


def test_the_ring_forgets_the_oldest():
    trace = Trace(3)
    for when in range(5):
        trace.add(WindowRecord(when, 1, 1))
    assert [r.when for r in trace.records] == [2, 3, 4]
    assert (len(trace), trace.count) == (3, 5)


def test_the_export_is_what_chrome_and_perfetto_read():
    """Complete events with microseconds; phases lie inside their window, one after another."""
    trace = Trace()
    trace.add(WindowRecord(2_000_000, 64, 1, read_us=500.0))
    trace.add(
        WindowRecord(
            3_000_000, 4, 1, {"head": 3}, 2, draft_us=10.0, run_us=100.0, verify_us=5.0, commit_us=7.5, tokens=3
        )
    )
    document = json.loads(trace.export())
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert all(e.keys() >= {"name", "ph", "ts", "dur", "pid", "tid"} for e in events)
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("prompt pass", 2000.0, 500.0),
        ("read", 2000.0, 500.0),
        ("window", 3000.0, 122.5),
        ("draft", 3000.0, 10.0),
        ("run", 3010.0, 100.0),
        ("verify", 3110.0, 5.0),
        ("commit", 3115.0, 7.5),
    ]
    assert events[2]["args"] == {
        "rows": 4, "conversations": 1, "drafted": {"head": 3}, "accepted": 2, "tokens": 3, "hits": {}, "misses": {},
        "host_wait_us": 0.0, "disk_wait_us": 0.0,
        "fetched": 0,
    }  # fmt: skip
    assert [e["ts"] for e in trace.events(last=1)["traceEvents"] if e["ph"] == "X"] == [
        3000.0,
        3000.0,
        3010.0,
        3110.0,
        3115.0,
    ]


def test_waits_lie_before_their_window_and_are_none_while_there_is_nothing_to_do():
    trace = Trace()
    assert trace.waited(1_000_000) == 0
    trace.add(WindowRecord(1_000_000, 1, 1, run_us=100.0))
    assert trace.waited(1_150_000) == 50
    trace.add(WindowRecord(1_150_000, 1, 1, run_us=100.0, wait_us=50.0))
    wait = next(e for e in trace.events()["traceEvents"] if e["name"] == "wait")
    assert (wait["ts"], wait["dur"]) == (1100.0, 50.0)
    trace.idle()
    assert trace.waited(9_000_000) == 0


def test_sums_are_those_of_all_windows():
    """Against sums over the records themselves, of more windows than are kept."""
    random = Random(1)
    trace, records = Trace(10), []
    for number in range(200):
        count = random.randint(0, 7)
        drafted = {random.choice(["head", "lookup"]): count} if count else {}
        times = {f"{phase}_us": random.random() for phase in ("draft", "run", "verify", "commit")}
        if number % 5 == 0:
            times = {"read_us": random.random() + 0.1, "verify_us": random.random()}
            drafted, count = {}, 0
        hits = {"vram": random.randint(0, 9), "ssd": random.randint(0, 9)}
        accepted = random.randint(0, count)
        records.append(WindowRecord(number, 8, 1, drafted, accepted, hits, tokens=accepted + 1, **times))
        trace.add(records[-1])
    sums = trace.totals.values()
    assert (sums["windows"], sums["passes"], sums["rows"]) == (160, 40, 1600)
    assert trace.totals.tokens == sum(r.tokens for r in records)
    assert sums["drafts"]["offered"] == [sum(sum(r.drafted.values()) > place for r in records) for place in range(7)]
    assert sums["drafts"]["accepted"] == [sum(r.accepted > place for r in records) for place in range(7)]
    for source, (offered, right) in sums["sources"].items():
        mine = [r for r in records if source in r.drafted]
        assert (offered, right) == (sum(r.drafted[source] for r in mine), sum(r.accepted for r in mine))
    assert sums["experts"] == {tier: sum(r.hits.get(tier, 0) for r in records) for tier in ("vram", "ram", "ssd")}
    for phase, seconds in sums["phases"].items():
        assert seconds == pytest.approx(sum(getattr(r, f"{phase}_us") for r in records) / 1e6)


def test_noting_a_window_costs_less_than_a_hundredth_of_it():
    """The fastest of many, of both: what else the machine does only ever lengthens some."""
    model = strata.load(threads=1)
    net, ids = model.network, tuple(prompt("base", 40))
    trace = Trace()
    a = Generation(net, net.new_state(), Request("a", ids, max_tokens=40))
    while not a.finished:
        events = a.read(trace=trace) if a.reading else step(net, [a], trace=trace)[0]
        assert events
    window = min(sum(record.phases.values()) for record in trace.records if not record.read_us)

    def note() -> float:
        began = time.perf_counter_ns()
        for _ in range(100):
            trace.add(WindowRecord(1, 8, 1, {"head": 7}, 5, {}, {}, 0.0, 1.0, 2.0, 3.0, 4.0))
        return (time.perf_counter_ns() - began) / 100 / 1e3

    assert min(note() for _ in range(50)) < window / 100


def test_where_experts_were_found():
    """Those that the host computed lay in RAM, but for those that were read first."""
    from strata.engine.window import _found
    from strata.model.tally import Tally

    assert _found(None) == {}
    assert _found(Tally(1, 10, 5, 2, 3)) == {"vram": 5, "ram": 5}
    assert _found(Tally(1, 10, 5, 2, 3).read(2, 7.5)) == {"vram": 5, "ram": 3, "ssd": 2}
    both = Tally(1, 10, 5, 2, 3).read(2, 7.5) - Tally().read(1, 0.5)
    assert (both.ssd, both.read_us) == (1, 7.0)
