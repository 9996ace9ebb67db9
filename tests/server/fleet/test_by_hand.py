"""Models that are loaded and unloaded by hand, with live engines."""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from support.several import say, several, until
from support.site import turn


@pytest.fixture
def start(tmp_path):
    made = []

    def starting(*names, **more):
        made.append(several(tmp_path, *names, **more))
        return made[-1]

    yield starting
    for one in made:
        one.close()


def test_a_model_is_loaded_and_unloaded_by_name_or_alias(start) -> None:
    site = start("a", "b", models={"b": {"aliases": ("small",)}})
    for path in ("/v1/models/load", "/models/load"):
        told = site.post(path, {"model": "SMALL", "wait": True}).json
        assert told == {"success": True, "model": "b", "status": {"value": "loaded", "state": "ready"}}
    assert site.states() == {"a": "unloaded", "b": "loaded"}
    assert site.loads("b") == 1
    pid = site.clients[1].status.pid
    told = site.post("/v1/models/unload", {"model": "b", "wait": True}).json
    assert told["status"]["value"] == "unloaded"
    assert not psutil.pid_exists(pid), "its memory is not given back"
    assert site.post("/models/unload", {"model": "b"}).json["status"]["value"] == "unloaded"
    assert site.chat(model="b").message["content"] == "I am b"
    assert site.post("/v1/models/load", {}).json["status"]["value"] == "loading"  # no name is the first
    until(lambda: site.states()["a"] == "loaded")


def test_answers_end_before_their_model_goes_and_later_ones_have_it_again(start, tmp_path) -> None:
    say(tmp_path, "a", turn("</think>\n\n" + "x" * 40, size=1, delay_ms=25), "</think>\n\nagain")
    site = start("a")
    with ThreadPoolExecutor(2) as pool:
        stream = pool.submit(site.chat_stream)
        until(lambda: site.client.status.running == 1)
        pid = site.client.status.pid
        assert site.post("/v1/models/unload", {"model": "a"}).json["status"]["value"] == "unloading"
        assert site.states() == {"a": "unloading"}
        later = pool.submit(site.chat)
        assert stream.result().delta("content") == "x" * 40
        assert later.result().status == 200
    assert site.loads("a") == 2
    assert site.client.status.pid != pid


def test_loading_waits_for_its_place_like_a_request(start, tmp_path) -> None:
    say(tmp_path, "a", turn("</think>\n\n" + "x" * 60, size=1, delay_ms=25))
    site = start("a", "b", most=1, turn=0.1)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(site.chat_stream, model="a")
        until(lambda: site.client.status.running == 1)
        assert site.post("/v1/models/load", {"model": "b"}).json["status"] == {
            "value": "unloaded", "state": "asleep", "waiting": 1,
        }  # fmt: skip
        until(lambda: site.states()["b"] == "loaded")
        assert stream.result().reasons == ["stop"], "an answer was cut for it"
    assert site.states() == {"a": "unloaded", "b": "loaded"}


def test_what_cannot_be_is_said(start, tmp_path) -> None:
    site = start("a", "bad")
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    for action in ("load", "unload"):
        assert site.post(f"/v1/models/{action}", {"model": "none"}).status == 404
        assert site.post(f"/v1/models/{action}", {"model": "a", "now": True}).status == 400
        assert site.post(f"/v1/models/{action}", {"model": "a", "wait": 1}).status == 400
        asked = site.get(f"/v1/models/{action}")  # it is no model's name
        assert (asked.status, asked.headers["allow"]) == (405, "POST")
    broken = site.post("/v1/models/load", {"model": "bad", "wait": True})
    assert broken.status == 503
    assert "bad.json" in broken.error
    assert site.post("/v1/models/load", {"model": "bad"}).status == 200  # the list says what came of it
    until(lambda: site.fleet.history["bad"].failures == 2)
    assert site.get("/v1/models/bad").json["status"]["failed"]


def test_one_that_takes_too_long_goes_on_loading(start) -> None:
    site = start("slow", models={"slow": {"loading_ms": 60_000}}, wait=1.5)
    began = time.monotonic()
    waited = site.post("/v1/models/load", {"model": "slow", "wait": True})
    assert waited.status == 503
    assert "within 1.5 s" in waited.error
    assert time.monotonic() - began >= 1.5
    loading = site.post("/v1/models/unload", {"model": "slow"})
    assert loading.status == 409
    assert "being loaded" in loading.error


def test_who_leaves_while_it_loads_is_forgotten(start) -> None:
    site = start("a", models={"a": {"loading_ms": 60_000}})
    connection = site.connect()
    connection.request("POST", "/v1/models/load", b'{"wait": true}')
    until(lambda: site.fleet.waiting(site.served) == 1)
    connection.close()
    until(lambda: site.fleet.waiting(site.served) == 0)


def test_a_model_that_is_always_there_says_so(start) -> None:
    site = start("a", models={"a": {"fixed": True, "awaited": True}})
    until(lambda: site.served.known is not None)
    assert site.post("/v1/models/load", {"wait": True}).json["status"]["value"] == "loaded"
    refused = site.post("/v1/models/unload", {})
    assert refused.status == 409
    assert "always loaded" in refused.error
