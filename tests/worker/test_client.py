"""A client and a real process with a scripted engine in it."""

import asyncio
import contextlib
import os
import random
import threading
import time

import psutil
import pytest

from strata.errors import QueueFullError, RequestError
from strata.worker import (
    Care,
    Client,
    EngineError,
    Finished,
    Kind,
    Progress,
    ScriptedEngine,
    State,
    Submit,
    Tokens,
)
from strata.worker.messages import PROTOCOL

LONG = {"pieces": ["a"] * 20000, "delay_ms": 2}


def text(events) -> str:
    return b"".join(piece.bytes for e in events if isinstance(e, Tokens) for piece in e.tokens).decode()


def eventually(true, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def first_token(answer) -> None:
    assert any(isinstance(event, Tokens) for event in answer)


def test_an_answer_comes_piece_by_piece_and_ends_with_its_usage(scripted) -> None:
    client = scripted({"pieces": ["1", ", ", "2"], "delay_ms": 1, "cached": 1})
    assert not client.status.ready
    events = list(client.submit(Submit((5, 6, 7))))  # submitted before it is ready
    assert text(events) == "1, 2"
    assert isinstance(events[0], Progress)
    assert isinstance(events[-1], Finished)
    assert (events[-1].reason, events[-1].usage.prompt, events[-1].usage.cached) == ("stop", 3, 1)
    ready = client.wait_ready(5)
    assert (ready.engine, ready.limits.conversations) == ("script", 8)
    assert client.status.state is State.READY
    assert client.ping().result(5).doing == "idle"
    assert client.ask_stats().result(5).values["tokens"] == 3
    assert b"traceEvents" in client.ask_trace().result(5).json
    eventually(lambda: client.stats.get("tokens") == 3)


def test_readiness_tells_the_truth(scripted) -> None:  # case T01
    client = scripted({"pieces": ["a"] * 30, "delay_ms": 5}, loading_ms=300)
    seen: list[State] = []
    shares: set[float] = set()

    def watch() -> State:
        status = client.status
        if not seen or seen[-1] is not status.state:
            seen.append(status.state)
        shares.add(status.loaded)
        assert status.ready == (status.state in {State.READY, State.BUSY})
        return status.state

    with pytest.raises(EngineError, match=r"not ready after 0\.01 s"):
        client.wait_ready(0.01)
    eventually(lambda: watch() is State.READY)
    assert client.status.restarts == 0
    answer = client.submit(Submit((1,)))
    eventually(lambda: watch() is State.BUSY)
    list(answer)
    eventually(lambda: watch() is State.READY)
    client.close()
    watch()
    assert seen == [State.STARTING, State.LOADING, State.READY, State.BUSY, State.READY, State.CLOSED]
    assert len(shares) > 5
    with pytest.raises(EngineError) as caught:
        client.submit(Submit((1,)))
    assert caught.value.kind is Kind.SHUTDOWN


@pytest.mark.parametrize("how", ["close", "with", "forget", "cancel"])
def test_an_answer_nobody_wants_any_more_stops_at_once(scripted, how) -> None:  # cases I01, I02
    client = scripted(LONG, {"pieces": ["next"]}, conversations=1)
    answer = client.submit(Submit((1,)))
    first_token(answer)
    if how == "with":
        with answer:
            pass
    elif how == "forget":
        del answer
    else:
        getattr(answer, how)()
    began = time.monotonic()
    assert text(client.submit(Submit((1,)))) == "next"
    assert time.monotonic() - began < 0.5
    if how == "cancel":
        events = list(answer)
        assert isinstance(events[-1], Finished)
        assert events[-1].reason == "cancelled"
    said = client.ask_stats().result(5).values["tokens"]
    time.sleep(0.05)
    assert client.ask_stats().result(5).values["tokens"] == said
    assert client.status.running == client.status.waiting == 0


def test_a_request_is_cancelled_while_it_waits_and_while_it_is_read(scripted) -> None:  # case I03
    client = scripted({"pieces": ["a"]}, conversations=1, reading_ms=20)
    client.wait_ready(10)
    reading, queued = client.submit(Submit((1,) * 6400)), client.submit(Submit((1,)))
    assert isinstance(next(reading), Progress)
    for answer in (queued, reading):
        answer.cancel()
        *_, last = answer
        assert isinstance(last, Finished)
        assert last.reason == "cancelled"
        assert last.usage.generated == 0
    eventually(lambda: client.status.state is State.READY, 0.5)


def test_requests_wait_for_an_engine_up_to_a_bound_and_a_deadline(scripted) -> None:  # case J07
    client = scripted({"pieces": ["a"]}, care=Care(queue=2), loading_ms=400)
    late = client.submit(Submit((1,), timeout=0.05))
    kept = client.submit(Submit((1,)))
    with pytest.raises(QueueFullError, match="of at most 2"):
        client.submit(Submit((1,)))
    (last,) = late
    assert last.reason == "timeout"
    waiting = client.submit(Submit((1,)))
    waiting.cancel()
    assert [event.reason for event in waiting] == ["cancelled"]
    assert text(kept) == "a"


def test_a_busy_engine_refuses_what_it_cannot_hold(scripted) -> None:  # case J07
    client = scripted({"pieces": ["a"] * 40, "delay_ms": 2}, conversations=2, queue=3)
    client.wait_ready(10)
    answers = [client.submit(Submit((1,))) for _ in range(60)]
    outcomes = []
    for answer in answers:
        try:
            outcomes.append(len(text(answer)))
        except QueueFullError as error:
            outcomes.append((error.running, error.waiting, error.bound))
    assert outcomes.count(40) >= 5
    assert set(outcomes) <= {40, (2, 3, 3)}
    assert len(outcomes) - outcomes.count(40) > 40
    assert client.status.running == client.status.waiting == 0


def test_bad_requests_are_refused_and_hurt_nobody(scripted) -> None:
    client = scripted({"pieces": ["a"]}, context=16)
    for request, said in (
        (Submit((1,) * 16), "context holds 16"),
        (Submit((1,), sampling={"top_p": 2}), "top_p must be"),
        (Submit(()), "empty"),
    ):
        with pytest.raises(RequestError, match=said):
            list(client.submit(request))
    for wrong in (Submit("ab"), Submit((1,), logprobs="x"), Submit((1.5,)), Submit((1,), sampling=3)):  # type: ignore[arg-type]
        with pytest.raises(RequestError, match=r"cannot be sent: Expected `[\w| ]+`, got"):
            client.submit(wrong)
    assert client.status.restarts == 0
    running = client.submit(Submit((1,), id="mine"))
    with pytest.raises(RequestError, match="a request with the id 'mine' under way"):
        client.submit(Submit((1,), id="mine"))
    assert text(running) == "a"
    assert text(client.submit(Submit((1,), id="mine"))) == "a"


def test_an_error_in_one_request_is_its_own(scripted) -> None:  # case J08
    turns = [{"pieces": ["a", "b"], "fault": "raise", "delay_ms": 2}, *[{"pieces": ["ok"] * 20, "delay_ms": 1}] * 3]
    client = scripted(*turns)
    answers = [client.submit(Submit((1,))) for _ in turns]
    with pytest.raises(EngineError, match="the script raises") as caught:
        list(answers[0])
    assert caught.value.kind is Kind.FAILED
    assert [text(answer) for answer in answers[1:]] == ["ok" * 20] * 3
    assert client.status.restarts == 0


def test_two_hundred_requests_of_every_kind_leave_nothing(scripted) -> None:  # case I05
    client = scripted({"pieces": ["a", "b", "c"], "delay_ms": 0.5}, context=64, conversations=2, reading_ms=0.2)
    client.wait_ready(10)
    dice = random.Random(5)
    wrong: list[object] = []

    def one() -> None:
        for _ in range(100):
            began = time.monotonic()
            kind = dice.choice(["cancel", "too long", "bad value", "normal", "normal"])
            try:
                if kind == "cancel":
                    answer = client.submit(Submit((1,) * 60))
                    time.sleep(dice.random() * 0.005)
                    dice.choice([answer.cancel, answer.close])()
                    list(answer)
                elif kind == "normal":
                    if text(client.submit(Submit((1,) * dice.randint(1, 60)))) != "abc":
                        wrong.append(kind)
                else:
                    bad = Submit((1,) * 99) if kind == "too long" else Submit((1,), sampling={"min_p": 2})
                    with pytest.raises(RequestError):
                        list(client.submit(bad))
            except Exception as error:  # noqa: BLE001
                wrong.append((kind, error))
            if time.monotonic() - began > 2:
                wrong.append((kind, "slow"))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert client.status.state is State.READY
    assert (client.status.running, client.status.waiting, client.status.restarts) == (0, 0, 0)
    stats = client.ask_stats().result(5).values
    assert (stats["running"], stats["waiting"]) == (0, 0)


def test_a_slow_reader_stops_nobody_and_costs_bounded_memory(scripted) -> None:
    client = scripted({"pieces": ["a"] * 5000}, {"pieces": ["quick"]}, care=Care(unread=1000))
    client.wait_ready(10)
    slow = client.submit(Submit((1,)))
    assert text(client.submit(Submit((1,)))) == "quick"
    eventually(lambda: client.status.state is State.READY)
    events = []
    with pytest.raises(EngineError, match="at most 1000 may") as caught:
        events.extend(slow)
    assert caught.value.kind is Kind.SLOW_READER
    assert client.ask_stats().result(5).values["running"] == 0


def test_waiting_tokens_are_put_together(scripted) -> None:
    client = scripted({"pieces": ["a"] * 500})
    answer = client.submit(Submit((1,)))
    eventually(lambda: client.status.state is State.READY and not client.status.running)
    events = list(answer)
    assert [type(event) for event in events] == [Progress, Tokens, Finished]
    assert text(events) == "a" * 500


def test_another_process_in_place_of_one_that_runs_or_loads(scripted) -> None:
    client = scripted({"pieces": ["a"]}, loading_ms=200)
    for _ in range(2):
        before = client.status.pid
        client.restart()
        assert not client.status.ready
        assert text(client.submit(Submit((1,)))) == "a"
        assert client.status.pid != before
    assert client.status.restarts == 0  # none has died


def test_an_answer_keeps_its_client(tmp_path, leaves_nothing) -> None:  # noqa: ARG001
    (tmp_path / "s.json").write_text('{"turns": [{"pieces": ["a", "b"], "delay_ms": 50}]}', encoding="utf-8")
    assert text(Client(ScriptedEngine(str(tmp_path / "s.json"))).submit(Submit((1,)))) == "ab"


def test_a_process_of_another_version_is_refused(scripted, monkeypatch) -> None:
    monkeypatch.setattr("strata.worker.messages.PROTOCOL", 99)
    client = scripted({"pieces": ["a"]})
    with pytest.raises(EngineError, match=rf"version {PROTOCOL} of the messages, (not|its client) 99") as caught:
        client.wait_ready(10)
    assert client.status.state is State.FAILED
    assert caught.value.kind in {Kind.PROTOCOL, Kind.NOT_READY}


@pytest.mark.parametrize("loaded", [False, True])
def test_another_thread_may_close_an_answer_that_is_waited_for(scripted, loaded) -> None:
    client = scripted({"pieces": ["a"], "delay_ms": 60000}, loading_ms=0 if loaded else 300)
    if loaded:
        client.wait_ready(20)
    answer = client.submit(Submit((1,)))
    threading.Timer(0.1, answer.close).start()
    assert all(isinstance(event, Progress) for event in answer)
    client.wait_ready(20)
    eventually(lambda: client.ask_stats().result(5).values["running"] == 0)


def test_health_and_counters_are_there_at_once_however_busy_the_engine_is(scripted) -> None:  # case T06
    client = scripted(*[{"pieces": ["a"] * 3000, "delay_ms": 0.5}] * 8, reading_ms=20, conversations=9)
    client.wait_ready(10)
    answers = [client.submit(Submit((1,))) for _ in range(8)]
    reading = client.submit(Submit((1,) * 20000))
    first_token(answers[0])
    times = []
    for _ in range(200):
        began = time.monotonic()
        assert client.status.state is State.BUSY
        assert isinstance(client.stats, dict)
        times.append(time.monotonic() - began)
        time.sleep(0.001)
    assert sorted(times)[197] < 0.2
    for answer in [*answers, reading]:
        answer.close()


def test_an_event_loop_hears_everything_and_never_waits(scripted) -> None:
    client = scripted({"pieces": ["a"] * 20, "delay_ms": 2}, LONG, {"pieces": ["a"], "fault": "raise"})

    async def read(request: Submit) -> str:
        async with contextlib.aclosing(client.stream(request)) as events:
            return text([event async for event in events])

    async def main() -> None:
        delays = []

        async def pulse() -> None:
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                delays.append(time.monotonic() - before)

        beat = asyncio.create_task(pulse())
        assert await read(Submit((1,))) == "a" * 20
        endless = asyncio.create_task(read(Submit((1,))))
        await asyncio.sleep(0.1)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        with pytest.raises(EngineError, match="the script raises"):
            await read(Submit((1,)))
        with pytest.raises(RequestError):
            await read(Submit(()))
        stats = await asyncio.wrap_future(client.ask_stats())
        assert stats.values["running"] == 0
        assert client.status.running == 0
        beat.cancel()
        assert sorted(delays)[len(delays) * 9 // 10] < 0.2

    asyncio.run(main())


def test_closing_ends_running_requests_and_the_process_in_time(scripted) -> None:  # case I07
    client = scripted(LONG, conversations=2, reading_ms=50)
    client.wait_ready(10)
    pid = client.status.pid
    answers = [client.submit(Submit((1,))), client.submit(Submit((1,) * 6400)), client.submit(Submit((1,)))]
    first_token(answers[0])
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 1
    assert not psutil.pid_exists(pid)
    for answer in answers:
        with pytest.raises(EngineError) as caught:
            list(answer)
        assert caught.value.kind is Kind.SHUTDOWN
    client.close()


def test_a_script_that_cannot_be_used_is_the_reason_at_once(scripted) -> None:
    client = scripted({"pieces": ["a"], "finish": "never"})
    waiting = client.submit(Submit((1,)))
    with pytest.raises(EngineError, match="turn 1: finish must be stop or length, not 'never'") as caught:
        client.wait_ready(10)
    assert caught.value.kind is Kind.NOT_READY
    with pytest.raises(EngineError, match="turn 1"):
        list(waiting)
    with pytest.raises(EngineError, match="turn 1"):
        client.submit(Submit((1,)))
    status = client.status
    assert (status.state, status.restarts, status.pid) == (State.FAILED, 0, None)
    assert "turn 1" in status.reason


def test_an_idle_engine_is_unloaded_and_woken_once_for_many(scripted, tmp_path) -> None:  # case J06
    client = scripted({"pieces": ["a"] * 30, "delay_ms": 10}, {"pieces": ["b"]}, care=Care(idle=0.15, beat=0.05))
    assert text(client.submit(Submit((1,)))) == "a" * 30  # twice the idle time, and not cut
    eventually(lambda: client.status.state is State.ASLEEP)
    eventually(lambda: client.status.pid is None)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(text(client.submit(Submit((1,)))))) for _ in range(8)]
    pids = set()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        pids.add(client.status.pid)
        time.sleep(0.002)
    assert answers == ["b"] * 8
    assert len(pids - {None}) == 1
    eventually(lambda: client.status.state is State.ASLEEP)
    file = tmp_path / "script-0.json"
    file.rename(tmp_path / "away.json")
    with pytest.raises(EngineError, match="cannot be read") as caught:
        list(client.submit(Submit((1,))))
    assert caught.value.kind is Kind.NOT_READY
    with pytest.raises(EngineError, match="cannot be read"):
        client.wait_ready(10)
    (tmp_path / "away.json").rename(file)
    assert text(client.submit(Submit((1,)))) == "b"
    assert os.getpid() not in pids


def test_an_id_may_be_used_again_as_soon_as_nobody_reads_it(scripted) -> None:
    """What the engine still says of the earlier request is no part of the later one's answer."""
    client = scripted(*[{"pieces": ["old"] * 20000}, {"pieces": ["new"]}] * 5)
    for _ in range(5):
        with client.submit(Submit((1,), "again")) as old:
            first_token(old)
        events = list(client.submit(Submit((2, 3), "again")))
        assert text(events) == "new"
        assert events[-1].usage.prompt == 2
        assert {event.id for event in events} == {"again"}


def test_a_question_nobody_waits_for_does_not_end_the_client(scripted) -> None:
    client = scripted({"pieces": ["a"], "fault": "hang"}, {"pieces": ["b"]})
    client.wait_ready(10)
    hanging = client.submit(Submit((1,)))
    first_token(hanging)
    asked = client.ask_stats()
    assert asked.cancel()
    with pytest.raises(EngineError, match="no sign of life"):
        hanging.take(20)
    assert client.wait_ready(20)
    assert text(list(client.submit(Submit((1,))))) == "b"


@pytest.mark.parametrize(("set_", "kept"), [(None, "PASSIVE"), ("active", "active")])
def test_threads_of_the_engine_that_wait_sleep(scripted, monkeypatch, set_, kept) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if set_ is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", set_)
    client = scripted({"pieces": ["a"]})
    client.wait_ready(10)
    assert psutil.Process(client.status.pid).environ()["OMP_WAIT_POLICY"] == kept
