"""What the server says of itself below /v1/strata: cases T01 to T07, S01 and S02 as far as they are its own."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Self

import jsonschema_rs
import pytest

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Care, Client, CustomEngine
from support.site import Script, Site, chat_body, engine, number, turn

SLOW = turn("x" * 400, size=1, delay_ms=20)


def until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def running(site: Site, *requests: dict) -> Iterator[None]:
    """Chats under way; they are cancelled at the end."""
    links = []
    for request in requests:
        link = socket.create_connection((site.host, site.port), timeout=20)
        body = json.dumps(chat_body(**{"stream": True, "max_tokens": 400, "reasoning_effort": "none", **request}))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body.encode())}\r\n\r\n"
        link.sendall(head.encode() + body.encode())
        links.append(link)
        until(lambda: all_taken(site, len(links)))
    try:
        yield
    finally:
        for link in links:
            link.close()
        until(lambda: not status(site)["requests"])


def all_taken(site: Site, count: int) -> bool:
    """Whether so many requests are under way, and the engine has them all."""
    told = status(site)
    engine = told["engines"][0]
    return len(told["requests"]) == count and engine["running"] + engine["waiting"] == count


def status(site: Site) -> dict:
    reply = site.get("/v1/strata/status")
    assert reply.status == 200
    assert reply.headers["cache-control"] == "no-store"
    return dict(reply.json)


class Feed:
    """One listener."""

    def __init__(self, site: Site, query: str = "") -> None:
        self._link = site.connect()
        self._link.request("GET", f"/v1/strata/events{query}")
        self.response = self._link.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self.response.close()

    def __next__(self) -> dict:
        line = self.response.readline()
        assert line.startswith(b"data: "), line
        assert self.response.readline() == b"\n"
        return dict(json.loads(line[6:]))


def test_a_snapshot_is_what_the_description_says(site) -> None:
    document = site.get("/openapi.json").json
    schema = {"$ref": "#/components/schemas/Snapshot", "components": document["components"]}
    judge = jsonschema_rs.validator_for(schema)
    site.say(SLOW)
    with running(site, {"content": "hi"}):
        judge.validate(status(site))
    told = status(site)
    judge.validate(told)
    assert told["recent"]
    with pytest.raises(jsonschema_rs.ValidationError):
        judge.validate({**told, "time": "now"})


def test_a_client_that_left_is_among_the_cancelled_ones(site) -> None:
    site.say(SLOW)
    before = status(site)["engines"][0]["cancels"]
    with running(site, {"content": "hi"}):
        pass
    until(lambda: status(site)["engines"][0]["cancels"]["count"] == before["count"] + 1)
    after = status(site)["engines"][0]["cancels"]
    assert sum(after["units"]) == after["count"]
    assert (after["open"], after["longest"] > 0) == (0, True)


def test_t04_speeds_are_true_from_the_start_and_count_only_what_was_read(site) -> None:
    """An engine of exactly 50 tokens a second and 640 tokens read a second; four fifths of the prompt are known."""
    site.say({**turn("x" * 60, size=1, delay_ms=20), "cached": 400}, reading_ms=100)
    until(lambda: not any(status(site)["engines"][0]["speed"][what] for what in ("answer", "prompt")))  # other tests'
    seen = []
    with running(site, {"content": "word " * 480}):
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 1.0 or (passed < 20 and not seen[-1]["requests"][0]["speed"]):
            seen.append(status(site))
            time.sleep(0.01)
    answers = [told["engines"][0]["speed"]["answer"] for told in seen]
    single = [told["requests"][0]["speed"] for told in seen if told["requests"]]
    assert max(answers) < 4 * 50
    assert any(rate > 0 for rate in answers)
    assert all(rate is None or rate == pytest.approx(50, rel=0.01) for rate in single), "by the engine's clock"
    assert any(single)
    last = seen[-1]["engines"][0]
    read = last["speed"]["read_tokens"] - seen[0]["engines"][0]["speed"]["read_tokens"]
    assert read <= last["cache"]["prompt_tokens"] - last["cache"]["cached_tokens"]
    prompts = [told["engines"][0]["speed"]["prompt"] for told in seen]
    assert max(prompts) < 1.2 * 640, "known tokens are none that were read"


def test_requests_wait_are_read_and_are_answered(site) -> None:
    site.say(SLOW, SLOW, reading_ms=200, conversations=1)
    states, reads = [], []
    with running(site, {"content": "word " * 250}, {"content": "short"}):
        until(lambda: [one["state"] for one in status(site)["requests"]] == ["reading", "waiting"])
        until(lambda: status(site)["engines"][0]["running"] == 1)
        told = status(site)
        assert (told["engines"][0]["running"], told["engines"][0]["waiting"]) == (1, 1)
        while not states or states[-1] != "answering":
            one, other = status(site)["requests"]
            states.append(one["state"])
            reads.append(one["read"])
            assert other["state"] == "waiting"
            assert (other["read"], other["first"], other["speed"]) == (0, None, None)
            assert one["read"] <= one["prompt"]
            time.sleep(0.02)
        until(lambda: status(site)["requests"][0]["generated"] > 3)
        one = status(site)["requests"][0]
        assert 0.3 < one["first"] < one["seconds"]
    assert reads == sorted(reads)
    assert len(set(reads)) > 3
    assert re.fullmatch(r"req_[0-9a-f]{24}", one["id"])
    assert (one["dialect"], one["model"], one["answers"]) == ("chat", "scripted", 1)


def test_what_is_over_is_listed_with_its_numbers(site) -> None:
    site.say(
        {"pieces": ["a", "b", "c"], "cached": 5},
        {"pieces": ["a"] * 9, "finish": "length"},
        {**turn("x"), "fault": "raise"},
        SLOW,
    )
    reply = site.chat()
    usage = reply.json["usage"]
    site.message(max_tokens=4)
    site.complete()
    with running(site, {}):
        pass
    gone, failed, length, stop, *_ = status(site)["recent"]
    assert stop["id"] == reply.headers["x-request-id"]
    assert (stop["prompt"], stop["cached"], stop["generated"]) == (
        usage["prompt_tokens"],
        5,
        usage["completion_tokens"],
    )
    assert (stop["dialect"], stop["outcome"], stop["error"]) == ("chat", "stop", "")
    assert stop["waiting"] + stop["reading"] + stop["answering"] <= stop["seconds"] + 0.01
    assert abs(stop["ended"] - time.time()) < 60
    assert (length["dialect"], length["outcome"], length["generated"]) == ("messages", "length", 4)
    assert (failed["dialect"], failed["outcome"], failed["error"]) == ("completions", "error", "failed")
    assert gone["outcome"] == "disconnect"
    site.say("ok")
    for _ in range(51):
        site.chat()
    assert len(status(site)["recent"]) == 50


def test_nothing_of_a_text_is_told(other_site, caplog) -> None:
    caplog.set_level("DEBUG")
    site = other_site(keys={"secretname": "secretkey"})
    key = {"authorization": "Bearer secretkey"}
    site.say(turn("secret " * 60, delay_ms=20), "secret again")
    told = []
    with contextlib.closing(site.connect()) as link:
        body = chat_body("the secret question", stream=True, max_tokens=400)
        link.request("POST", "/v1/chat/completions", json.dumps(body), key)
        with link.getresponse() as response:
            assert b"role" in response.readline()
            paths = ("status", "events?snapshots=1", "trace?windows=99")
            told += [site.get(f"/v1/strata/{path}", **key).body for path in paths]
            told.append(site.get("/metrics", **key).body)
    until(lambda: site.get("/v1/strata/status", **key).json["recent"])
    assert site.chat("another secret").status == 401
    site.post("/v1/chat/completions", chat_body("secret", tool_choice="secret"), **key)
    site.post(
        "/v1/messages", {"model": "secret", "max_tokens": 5, "messages": [{"role": "user", "content": "secret"}]}, **key
    )
    told.append(site.get("/v1/strata/status", **key).body)
    assert b'"outcome":"stop"' in told[-1]
    assert b'"state":"' in told[0]
    assert b"req_" in told[0]
    for body in told:
        assert b"secret" not in body
    assert site.get("/v1/strata/status").status == 401
    assert site.get("/v1/strata/events").status == 401
    assert "secret " not in caplog.text


def test_s02_foreign_names_and_pages_see_nothing(site) -> None:
    for path in ("status", "events?snapshots=1", "trace"):
        assert site.get(f"/v1/strata/{path}", host="evil.example").status == 403
        assert site.get(f"/v1/strata/{path}", origin="https://a.example").status == 403
        assert site.get(f"/v1/strata/{path}").status == 200
        assert site.post(f"/v1/strata/{path}", {}).status == 405


def test_events_come_twice_a_second_while_somebody_listens(site) -> None:
    listeners = site.desk.monitor.listeners
    with Feed(site) as feed:
        assert feed.response.getheader("content-type").startswith("text/event-stream")
        assert feed.response.getheader("content-encoding") is None
        first, began = next(feed), time.monotonic()
        numbers = [next(feed)["number"] for _ in range(3)]
        assert time.monotonic() - began > 1.0, "three half seconds, and a machine that is late"
        assert [first["number"], *numbers] == sorted({first["number"], *numbers})
        assert first["server"]["listeners"] == 1
        assert listeners._making is not None
    until(lambda: len(listeners) == 0)
    assert listeners._making is None, "nothing happens while nobody listens"
    number = status(site)["number"]
    time.sleep(0.7)
    assert status(site)["number"] == number + 1
    with Feed(site, "?snapshots=2") as feed:
        assert number + 1 < next(feed)["number"] < next(feed)["number"]
        assert feed.response.read() == b""
    head = site.request("HEAD", "/v1/strata/events")
    assert (head.status, head.body) == (200, b"")


def test_listeners_are_bounded(site) -> None:
    listeners = site.desk.monitor.listeners
    with contextlib.ExitStack() as feeds:
        for _ in range(16):
            next(feeds.enter_context(Feed(site)))
        reply = site.get("/v1/strata/events")
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert "16 listen already" in reply.error
        assert status(site)["server"]["listeners"] == 16
    until(lambda: len(listeners) == 0)
    with Feed(site) as feed:
        next(feed)


def test_a_slow_listener_misses_snapshots_and_costs_bounded_memory(site, monkeypatch) -> None:
    listeners, made = site.desk.monitor.listeners, []

    async def large() -> bytes:
        made.append(len(made))
        return b'data: {"number": %d, "padding": "%s"}\n\n' % (made[-1], b"x" * 200_000)

    monkeypatch.setattr(listeners, "_make", large)
    monkeypatch.setattr(listeners, "_period", 0.005)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        slow.settimeout(20)
        slow.connect((site.host, site.port))
        slow.sendall(b"GET /v1/strata/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with Feed(site) as quick:
            numbers = [next(quick)["number"] for _ in range(60)]
            assert numbers == sorted(set(numbers)), "the other one goes on"
            assert len(made) >= 60
            found, seen = b"", []
            while len(seen) < 40 and (not seen or seen[-1] < 60):
                found += slow.recv(1 << 20)
                seen = [int(n) for n in re.findall(rb'"number": (\d+),', found)]
        assert seen == sorted(set(seen))
        assert any(b - a > 1 for a, b in pairwise(seen)), "what it did not take is gone"


def test_events_end_with_the_server(other_site) -> None:
    site = other_site()
    with Feed(site) as feed:
        next(feed)
        began = time.monotonic()
        site.close()
        rest = feed.response.read()  # a whole end: http.client would say IncompleteRead of another
        assert time.monotonic() - began < 5
        assert rest.count(b"data: ") <= 20


def test_listening_survives_one_that_leaves_at_any_time(site) -> None:
    for wait in (0, 0, 0.1, 0.3):
        with Feed(site):
            time.sleep(wait)
    with socket.create_connection((site.host, site.port)) as link:
        link.sendall(b"GET /v1/strata/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: len(site.desk.monitor.listeners) == 0)
    with Feed(site) as feed:
        next(feed)


def test_a_look_that_fails_is_not_the_last(site, monkeypatch, caplog) -> None:
    monitor, looks = site.desk.monitor, []
    snapshot = monitor.snapshot

    async def once() -> object:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("a bug")
        return await snapshot()

    monkeypatch.setattr(monitor, "snapshot", once)
    with Feed(site) as feed:
        next(feed)
    assert "a snapshot could not be made" in caplog.text


def test_the_trace_has_as_many_windows_as_are_asked_for(site) -> None:
    site.say(turn("x" * 30, size=1, delay_ms=2), reading_ms=2)
    site.chat("word " * 200)
    reply = site.get("/v1/strata/trace?windows=5")
    assert reply.headers["content-type"] == "application/json"
    events = [event for event in reply.json["traceEvents"] if event["ph"] == "X"]
    windows = [event for event in events if event["name"] in {"window", "prompt pass"}]
    assert len(windows) == 5
    assert {event["name"] for event in events} <= {"window", "prompt pass", "run", "read", "wait"}
    assert all(event["dur"] > 0 for event in events)
    many = site.get("/v1/strata/trace").json["traceEvents"]
    assert sum(event["name"] == "prompt pass" for event in many) >= 3
    for wrong in ("0", "-1", "x", "4097", "1.5", "", "٣", "9" * 40):
        reply = site.get(f"/v1/strata/trace?windows={wrong.encode().hex() if not wrong.isascii() else wrong}")
        assert reply.status == 400
        assert "from 1 to 4096" in reply.error
    assert site.get("/v1/strata/events?snapshots=0").status == 400
    assert site.get("/v1/strata/trace?model=scripted&windows=1").status == 200


STATS = {
    "finished": 7,
    "failed": 1,
    "generated_tokens": 999,
    "checkpoints": 4,
    "evicted": 2,
    "refused": 1,
    "hits": 5,
    "misses": 3,
    "ram_bytes": 1000,
    "ram_limit": 5000,
    "disk_bytes": 300,
    "disk_limit": 700,
    "prompt_tokens": 1000,
    "cached_tokens": 800,
    "read_tokens": 200,
    "reading_s": 0.5,
    "read_speed": 400.0,
    "answering_s": 10.0,
    "answered_tokens": 990,
    "answer_speed": 99.0,
    "windows": 400,
    "drafts": {"offered": [300, 200, 100, 0, 0, 0, 0], "accepted": [240, 120, 30, 0, 0, 0, 0]},
    "sources": {"head": [500, 350], "lookup": [100, 40]},
    "experts": {"vram": 900, "ram": 90, "ssd": 10},
    "phases": {"read": 0.5, "run": 8.0},
    "of another make": ["?"],
}
HOLDINGS = {
    "kept": [[500, 400, 500, 100, 900, 3.5], [90, 0, 90, 0, 0, None]],
    "conversations": 12,
    "pools": [{"name": "GPU", "total": 100, "free": 20, "taken": 70, "used": 60}],
}


@pytest.fixture
def watched() -> Iterator[Callable[..., Site]]:
    """Sites before an engine that says of itself what it was told to."""
    with contextlib.ExitStack() as opened:

        def start(**values: object) -> Site:
            client = Client(CustomEngine("support.engines:watched", {"stats": STATS, "holdings": HOLDINGS, **values}))
            opened.enter_context(client)
            site = Site(client, None, Options(port=0, drain=0.1), Served(client, ModelFile.open(None), "watched"))  # type: ignore[arg-type]
            opened.callback(site.close)
            until(lambda: client.stats)
            return site

        yield start


def test_t07_what_the_engine_says_is_told_as_it_is(watched) -> None:
    site = watched()
    until(lambda: status(site)["engines"][0]["cache"]["conversations"] is not None)
    told = status(site)["engines"][0]
    assert told["experts"] == {"tiers": True, "vram": 900, "ram": 90, "ssd": 10}
    assert told["drafts"]["depths"][:3] == [
        {"offered": 300, "accepted": 240}, {"offered": 200, "accepted": 120}, {"offered": 100, "accepted": 30},
    ]  # fmt: skip
    assert told["drafts"]["sources"]["lookup"] == {"offered": 100, "accepted": 40}
    assert told["drafts"]["windows"] == 400
    assert told["speed"] == {
        "prompt": 400.0, "answer": 99.0, "read_tokens": 200, "reading": 0.5, "answered_tokens": 990, "answering": 10.0,
    }  # fmt: skip
    cache = told["cache"]
    assert (cache["conversations"], cache["checkpoints"], cache["evicted"], cache["refused"]) == (12, 4, 2, 1)
    assert (cache["hits"], cache["misses"], cache["prompt_tokens"], cache["cached_tokens"]) == (5, 3, 1000, 800)
    assert (cache["ram_bytes"], cache["ram_limit"], cache["disk_bytes"], cache["disk_limit"]) == (1000, 5000, 300, 700)
    assert cache["kept"] == [
        {"tokens": 500, "in_memory": 400, "on_disk": 500, "shared": 100, "ram_bytes": 900, "age": 3.5},
        {"tokens": 90, "in_memory": 0, "on_disk": 90, "shared": 0, "ram_bytes": 0, "age": None},
    ]
    assert told["memory"] == HOLDINGS["pools"]
    assert told["phases"] == STATS["phases"]
    assert (told["finished"], told["failed"], told["generated_tokens"]) == (7, 1, 999)
    # and the same in Prometheus' words
    assert number(site, "vllm:avg_prompt_throughput_toks_per_s") == 400
    assert number(site, "vllm:avg_generation_throughput_toks_per_s") == 99
    assert number(site, "strata:draft_tokens_per_pos_total", position="1") == 200
    assert number(site, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position="1") == 120
    assert number(site, "strata:draft_accepted_by_source_total", source="head") == 350
    assert [number(site, "strata:expert_hits_total", tier=tier) for tier in ("vram", "ram", "ssd")] == [900, 90, 10]
    assert number(site, "strata:engine_seconds_total", phase="run") == 8
    assert number(site, "strata:scheduler_ram_limit") == 5000
    assert number(site, "strata:process_resident_bytes", process="engine") > 1 << 20
    assert number(site, "strata:ram_bytes", what="total") > 1 << 28


def test_t06_an_engine_that_does_not_answer_is_not_waited_for(watched) -> None:
    site = watched(slow=3.0)
    times = []
    for _ in range(5):
        began = time.monotonic()
        told = status(site)["engines"][0]
        times.append(time.monotonic() - began)
        assert told["cache"]["conversations"] is None, "it has not said it yet"
    assert min(times) < 0.5
    until(lambda: status(site)["engines"][0]["cache"]["conversations"] == 12)


def test_t07_counters_that_come_too_late_are_not_taken_for_new_ones(site, monkeypatch) -> None:
    from concurrent.futures import Future

    from strata.server.monitor.engines import Look
    from strata.worker import messages as m

    asked: list[Future] = []
    monkeypatch.setattr(site.client, "ask_stats", lambda: asked.append(Future()) or asked[-1])
    look = Look(site.served)
    now = site.client.stats["finished"]
    asyncio.run(look.ask(0.01))
    assert look.engine().cache.conversations is None
    asked[0].set_result(m.Stats(1, {**site.client.stats, "finished": now + 1000}, m.Holdings(conversations=5)))
    asyncio.run(look.ask(0.01))
    told = look.engine()
    assert (told.finished, told.cache.conversations) == (now, 5), "what it counted an hour ago is not the newest"
    assert len(asked) == 2
    asked[1].set_result(m.Stats(2, {**site.client.stats, "finished": now + 1}, m.Holdings(conversations=6)))


def test_an_engine_of_another_make_has_zeros(watched) -> None:
    site = watched(stats={"drafts": "none", "hits": "?"})
    told = status(site)["engines"][0]
    assert told["cache"]["hits"] == 0
    assert told["drafts"]["depths"] == []
    assert site.get("/metrics").status == 200


def test_t01_a_death_is_told_and_its_reason(tmp_path) -> None:
    script = Script(tmp_path / "script.json")
    with Client(engine(script.path), Care(beat=0.05)) as client:
        script.client = client
        site = Site(client, script, Options(port=0, drain=0.1))
        try:
            site.say({"pieces": ["x"], "fault": "die"})
            before = status(site)
            assert [process["kind"] for process in before["processes"]] == ["server", "engine"]
            assert site.chat().status == 500
            until(lambda: status(site)["engines"][0]["state"] == "ready")
            told = status(site)
            one = told["engines"][0]
            assert one["restarts"] == 1
            assert "signal" in one["reason"]
            assert told["processes"][1]["pid"] != before["processes"][1]["pid"]
            assert told["recent"][0]["error"] == "engine_died"
            assert number(site, "strata:engine_restarts_total") == 1
        finally:
            site.close()


def test_t06_it_answers_while_the_server_is_busy(site) -> None:
    site.say(*[turn("x" * 150, size=1, delay_ms=10)] * 7, "read", reading_ms=10, conversations=8)
    threads = [threading.Thread(target=site.chat_stream, kwargs={"max_tokens": 200}) for _ in range(7)]
    threads.append(threading.Thread(target=site.chat_stream, args=("word " * 3000,)))
    for thread in threads:
        thread.start()
    rounds = []
    for _ in range(3):
        times = []
        for path in ("/health", "/v1/strata/status", "/v1/strata/trace?windows=8") * 5:
            began = time.monotonic()
            assert site.get(path).status == 200
            times.append(time.monotonic() - began)
        rounds.append(max(times))
    for thread in threads:
        thread.join()
    assert min(rounds) < 0.2


def test_over_committed_memory_is_shown_in_status_and_metrics(watched) -> None:
    told = "video memory seems to be over-committed: 90% of the experts are found there"
    site = watched(stats={"overcommit": told})
    until(lambda: status(site)["engines"][0]["overcommit"] == told)
    until(lambda: 'strata:vram_overcommitted{model_name="watched"} 1.0' in site.get("/metrics").body.decode())
