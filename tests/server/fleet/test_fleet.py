"""Several models behind one address: case J06 and its kind, with live engines."""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from strata.loading.files import ModelFile
from strata.server.fleet.fleet import Fleet, Member
from strata.server.served import Served
from strata.worker import Care, Client, ModelEngine
from support.several import Several, say, several, until
from support.site import message_body, turn


@pytest.fixture
def start(tmp_path):
    made = []

    def starting(*names, **more):
        made.append(several(tmp_path, *names, **more))
        return made[-1]

    yield starting
    for one in made:
        one.close()


def test_j06_idle_unload_does_not_race_with_requests(start, tmp_path) -> None:
    say(tmp_path, "one", turn("</think>\n\n" + "x" * 40, size=1, delay_ms=50), "</think>\n\nok")
    site = start("one", models={"one": {"idle": 0.4, "early": True, "awaited": True}})
    until(lambda: site.served.known is not None)
    with ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(site.chat_stream)  # two seconds, five times as long as it may be idle
        until(lambda: site.client.status.running == 1)
        pid, began = site.client.status.pid, time.monotonic()
        while (now := site.client.status).running:
            assert now.pid == pid, "it was unloaded under a running stream"
            time.sleep(0.01)
        assert time.monotonic() - began > 1.5
        stream = streaming.result()
    assert stream.reasons == ["stop"]
    assert stream.delta("content") == "x" * 40
    until(lambda: site.client.status.pid is None)
    assert not psutil.pid_exists(pid), "its memory is not given back"
    for path in ("/health", "/live", "/metrics", "/props", "/slots", "/v1/models"):
        assert site.get(path).status == 200, path
    assert site.get("/health").json["state"] == "asleep"
    assert site.get("/props").json["state"] == "asleep"
    assert site.tokens(content="abc")
    assert site.post("/v1/messages/count_tokens", message_body()).status == 200
    assert site.chat([{"role": "nobody", "content": "x"}]).status == 400
    assert site.client.status.pid is None, "something woke it that needs no engine"
    before = site.loads("one")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: site.chat(), range(8)))
    assert [reply.status for reply in replies] == [200] * 8
    assert site.loads("one") == before + 1
    until(lambda: site.client.status.pid is None)
    script = tmp_path / "one.json"
    script.rename(tmp_path / "away")
    reply = site.chat()
    assert reply.status == 503
    assert "could not be loaded" in reply.error
    assert "one.json" in reply.error
    assert int(reply.headers["retry-after"]) >= 1
    assert site.get("/live").status == 200
    (tmp_path / "away").rename(script)
    assert site.chat().status == 200


def test_two_that_do_not_fit_together_are_served_in_order(start, tmp_path) -> None:
    for name in "ab":
        say(tmp_path, name, turn(f"</think>\n\nI am {name}", size=2, delay_ms=20))
    site = start("a", "b", most=1, turn=0.5)
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda n: site.chat(model="ab"[n % 2]), range(12)))
    for number, reply in enumerate(replies):
        assert reply.status == 200, reply.body
        assert reply.json["model"] == "ab"[number % 2]
        assert reply.message["content"] == f"I am {'ab'[number % 2]}", "an answer came from another's model"
    assert site.loads("a") + site.loads("b") <= 4, "they push each other out"
    until(lambda: sorted(site.states().values()) == ["loaded", "unloaded"])
    numbers = {
        (sample.name, sample.labels.get("model_name")): sample.value
        for family in text_string_to_metric_families(site.get("/metrics").body.decode())
        for sample in family.samples
    }
    for name in "ab":
        assert numbers["vllm:generation_tokens_total", name] > 0
        assert numbers["strata:model_loads_total", name] == site.loads(name)


def test_a_stream_says_that_it_waits_for_its_model_in_every_dialect(start) -> None:
    site = start("a", models={"a": {"loading_ms": 1500}}, options={"sign": 0.1})
    with ThreadPoolExecutor(4) as pool:
        streams = list(
            pool.map(
                lambda stream: stream(),
                (site.chat_stream, site.message_stream, site.response_stream, lambda: site.stream(
                    "/v1/completions", {"prompt": "x", "max_tokens": 9}
                )),
            )
        )  # fmt: skip
    for stream in streams:
        assert stream.status == 200
        assert stream.comments.count("waiting for the model") >= 3
        assert b"I am a" in stream.raw.replace(b"\\n", b"")
    assert site.loads("a") == 1
    assert streams[0].reasons == ["stop"]
    assert streams[1].items[0][0] == "message_start"
    assert streams[2].items[0][0] == "response.created"


def test_a_model_that_cannot_be_loaded_harms_nobody_else(start, tmp_path) -> None:
    say(tmp_path, "good", turn("</think>\n\n" + "x" * 100, size=1, delay_ms=20), "</think>\n\nok")
    site = start("good", "bad", most=1, turn=0.0, options={"sign": 0.1})
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    assert site.chat(model="good").status == 200
    for ask in (site.chat, site.message, site.response):
        reply = ask(model="bad")
        assert reply.status == 503
        assert "bad" in reply.error
        assert "could not be loaded" in reply.error
        assert int(reply.headers["retry-after"]) >= 1
        assert site.get("/health").status == 200
    assert site.fleet.history["bad"].failures == 3  # nothing was pushed out for the second and third
    assert site.chat(model="good").status == 200
    reply = site.chat(model="bad")  # now something would be
    assert reply.status == 503
    assert site.fleet.history["bad"].failures == 3
    assert int(reply.headers["retry-after"]) > 1
    assert site.states() == {"good": "loaded", "bad": "unloaded"}
    told = site.get("/v1/models/bad").json["status"]
    assert told["failed"]
    assert "script" in told["reason"]
    for stream in (site.chat_stream(model="bad"), site.response_stream(model="bad")):
        assert stream.status == 503 or b"could not be loaded" in stream.raw


def test_a_load_that_fails_after_the_stream_began_is_said_in_the_stream(start) -> None:
    site = start("a", models={"a": {"loading_ms": 60_000}}, options={"sign": 0.1})
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(ask) for ask in (site.chat_stream, site.message_stream, site.response_stream)]
        until(lambda: site.served.status.state == "loading" and site.fleet.waiting(site.served) == 3)
        time.sleep(1)
        site.client.close(0.1)  # whatever ends it
        chat, message, response = [one.result() for one in streams]
    assert chat.items[-1][1] == "[DONE]"
    assert "could not be loaded" in chat.items[-2][1]["error"]["message"]
    assert message.items[-1][0] == "error"
    assert response.items[-1][0] == "response.failed"
    assert response.items[-1][1]["response"]["usage"] is None


def test_names_aliases_and_none(start) -> None:
    site = start("a", "b", models={"a": {"aliases": ("gpt-*",)}, "b": {"aliases": ("claude-*-haiku", "Small")}})
    for given, meant in (("b", "b"), ("GPT-5", "a"), ("claude-9-haiku", "b"), ("small", "b"), ("", "a"), (..., "a")):
        assert site.chat(model=given).json["model"] == meant, given
    for ask in (site.chat, site.message, site.response, site.complete):
        reply = ask(model="mini")
        assert reply.status == 404
        assert "'a', 'b'" in reply.error
    assert site.post("/tokenize", {"model": "mini", "content": "x"}).status == 404
    models = site.get("/v1/models").json
    assert [one["id"] for one in models["data"]] == ["a", "b"]
    assert (models["first_id"], models["last_id"]) == ("a", "b")
    assert site.get("/v1/models/small").json["id"] == "b"
    assert site.get("/v1/models/mini").status == 404
    assert site.get("/props?model=b").json["model_alias"] == "b"
    assert site.get("/props?model=mini").status == 404
    health = site.get("/health").json
    assert health["status"] == "ok"
    assert set(health["models"]) == {"a", "b"}


def test_waiting_is_bounded_in_number_and_time(start) -> None:
    site = start("a", models={"a": {"loading_ms": 60_000}}, wait=1.5, waiting=2)
    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(site.chat) for _ in range(2)]
        until(lambda: site.fleet.waiting(site.served) == 2)
        third = site.chat()
        assert third.status == 429
        assert third.headers["retry-after"]
        for reply in [one.result() for one in first]:
            assert reply.status == 503
            assert "within 1.5 s" in reply.error
            assert reply.headers["retry-after"]
    assert site.states() == {"a": "loading"}  # the next one will find it further on
    assert site.fleet.waiting(site.served) == 0


def test_who_leaves_while_its_model_loads_is_forgotten(start) -> None:
    site = start("a", "b", most=1, models={"a": {"loading_ms": 60_000}})
    for stream in (False, True):
        connection = site.connect()
        connection.request("POST", "/v1/messages", b'{"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]'
                           + (b', "stream": true}' if stream else b"}"))  # fmt: skip
        until(lambda: site.fleet.waiting(site.served) == 1)
        connection.close()
        until(lambda: site.fleet.waiting(site.served) == 0)
    assert not site.desk.busy


def test_the_server_ends_while_a_model_loads(start) -> None:
    site = start("a", models={"a": {"loading_ms": 60_000}}, options={"sign": 0.1})
    with ThreadPoolExecutor(2) as pool:
        whole, stream = pool.submit(site.chat), pool.submit(site.chat_stream)
        until(lambda: site.fleet.waiting(site.served) == 2)
        time.sleep(0.7)
        site.close()
        assert whole.result().status == 503
        assert "ending" in stream.result().items[-2][1]["error"]["message"]


def test_conversations_outlive_their_engine(tmp_path) -> None:
    engine = ModelEngine("pebble", 1, {"slots": 1, "folder": str(tmp_path / "kept")})
    client = Client(engine, Care(asleep=True, beat=0.05))
    served = Served(client, lambda: ModelFile.open("pebble"), "pebble", awaited=False)
    site = Several(Fleet([Member(served=served, idle=0.3)]), [client], tmp_path)
    site.patience = 300  # kernels may have to be compiled
    try:
        said = [{"role": "user", "content": "Count from 1 to 20."}]
        first = site.chat(said, reasoning_effort="none", max_tokens=16).json
        until(lambda: client.status.pid is None)
        said += [first["choices"][0]["message"], {"role": "user", "content": "Once more."}]
        again = site.chat(said, reasoning_effort="none", max_tokens=16).json
        usage = first["usage"]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"]
        assert site.loads("pebble") == 2
    finally:
        site.close()
