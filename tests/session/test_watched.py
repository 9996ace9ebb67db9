"""What a scheduler says of itself: speeds and what is kept."""

from itertools import pairwise

import pytest
import torch

from strata.engine import Request, Trace
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.network import network, prompt
from support.serving import check_sums, run


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def request(name, tokens, count, **more):
    return Request(name, tuple(tokens), max_tokens=count, **more)


@pytest.fixture(scope="module")
def net():
    return network("other")


class Clock:
    """A millisecond each time it is looked at."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_t04_speeds_are_of_what_was_read_and_chosen(net) -> None:
    """With most of the prompt known already, only the rest counts as read."""
    trace = Trace()
    scheduler = Scheduler(net, Options(rows=64, step=64), trace=trace, clock=Clock())
    text = prompt("other", 200)
    run(scheduler, request("first", text, 5))
    before = scheduler.stats()
    run(scheduler, request("second", [*text, *prompt("other", 9, seed=3)], 5))
    stats = scheduler.stats()
    assert (before.read_tokens, before.cached_tokens) == (200, 0)
    assert (stats.read_tokens, stats.cached_tokens, stats.prompt_tokens) == (209, 200, 409)
    assert stats.read_speed == pytest.approx(stats.read_tokens / stats.reading_s)
    assert stats.answered_tokens == 2 * 4, "the first token of an answer comes with its prompt"
    assert stats.generated_tokens == 2 * 5
    assert stats.answer_speed == pytest.approx(stats.answered_tokens / stats.answering_s)
    assert stats.answered_tokens == sum(record.tokens for record in trace.records if record.run_us)


def test_tokens_are_counted_when_they_are_chosen(net) -> None:
    scheduler = Scheduler(net, Options())
    scheduler.submit(request("one", prompt("other", 5), 20))
    seen = []
    while not scheduler.idle:
        scheduler.tick()
        seen.append(scheduler.stats().generated_tokens)
    assert seen[-1] == 20
    assert all(0 <= b - a <= 8 for a, b in pairwise(seen))
    assert len(set(seen)) > 2


def test_time_between_answers_is_no_time_of_theirs(net) -> None:
    clock = Clock()
    scheduler = Scheduler(net, Options(), clock=clock)
    for name, count in (("one", 5), ("two", 1), ("three", 5)):  # the second is over with its prompt
        run(scheduler, request(name, prompt("other", 5), count))
        clock.now += 1000
    assert scheduler.stats().answering_s < 1
    assert scheduler.stats().answer_speed == 0


def test_waits_are_those_between_windows_of_one_piece_of_work(net) -> None:
    trace = Trace()
    scheduler = Scheduler(net, Options(), trace=trace)
    run(scheduler, request("one", prompt("other", 5), 5))
    run(scheduler, request("two", prompt("other", 6), 5))
    records = trace.records
    firsts = [record for record in records if record.read_us]
    assert [record.wait_us for record in firsts] == [0, 0]
    for one, two in pairwise(records):
        end = one.when / 1e3 + sum(one.phases.values())
        if two not in firsts:
            assert two.wait_us == pytest.approx(two.when / 1e3 - end, abs=1)


def test_conversations_are_listed_with_what_they_share(net, tmp_path) -> None:
    clock = Clock()
    scheduler = Scheduler(net, Options(folder=tmp_path, reserve=0), clock=clock)
    system = prompt("other", 70)
    for number in range(3):
        run(scheduler, request(f"{number}", [*system, *prompt("other", 10, seed=50 + number)], 4, marks=(70,)))
        clock.now += 10
    found, now = scheduler.kept(most=2)
    assert scheduler.conversations == 3
    assert [(one.tokens, one.shared) for one in found] == [(83, 70), (83, 70)]
    ages = [now - one.used for one in found]
    assert 10 < ages[0] < 11
    assert 20 < ages[1] < 22
    everything, _ = scheduler.kept(most=99)
    assert all(one.in_memory == one.on_disk == 83 for one in everything), "saved, and still in memory"
    assert 0 < sum(one.ram_bytes for one in everything) < scheduler.stats().ram_bytes
    scheduler.close()
    again = Scheduler(net, Options(folder=tmp_path, reserve=0))
    found, _ = again.kept(most=99)
    assert [(one.tokens, one.in_memory, one.on_disk, one.used) for one in found] == [(83, 0, 83, None)] * 3
    stats = again.stats()
    assert (stats.ram_bytes, stats.ram_limit, stats.disk_limit) == (0, 1 << 30, 10 << 30)
    assert stats.disk_bytes > 0
    again.close()


def test_sums_follow_what_is_lost(net, tmp_path) -> None:
    scheduler = Scheduler(net, Options(folder=tmp_path, reserve=0))
    text = prompt("other", 70)
    run(scheduler, request("one", text, 4))
    scheduler.close()
    again = Scheduler(net, Options(folder=tmp_path, reserve=0))
    store = again._store
    check_sums(store)
    assert store.leaves == 1
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 1000:
            path.unlink()
    assert store.restore("", [*text, *prompt("other", 9, seed=4)], loose=True) is None
    assert store.counts.refused == 1
    check_sums(store)
    again.close()
