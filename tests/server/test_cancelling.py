"""Clients that leave and clients that crowd: cases I01 to I05, J01, J07 and J08."""

import json
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.site import chat_body, message_body, receive, turn

LONG = turn("x" * 4000, size=1, delay_ms=5)


def begin(site, path: str, body: dict) -> socket.socket:
    link = socket.create_connection((site.host, site.port), timeout=5)
    data = json.dumps(body).encode()
    link.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return link


def busy(site) -> int:
    status = site.client.status
    return status.running + status.waiting


def until(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def reset(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["FIN", "RST"])
def test_i01_leaving_a_stream_ends_its_work(site, leave) -> None:
    site.say(LONG, "next")
    for path, body in (
        ("/v1/chat/completions", chat_body(max_tokens=20000, stream=True)),
        ("/v1/messages", message_body(max_tokens=20000, stream=True)),
    ):
        link = begin(site, path, body)
        for _ in range(5):
            assert link.recv(1 << 12)
        leave(link)
        until(lambda: busy(site) == 0)
        site.say(LONG, "next")
    site.say(LONG, "next")
    link = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000, stream=True))
    link.recv(100)
    leave(link)
    until(lambda: busy(site) == 0)
    began = time.monotonic()
    assert site.chat(reasoning_effort="none").message["content"] == "next"
    assert time.monotonic() - began < 1
    tokens = site.client.ask_stats().result(2).values["tokens"]
    time.sleep(0.1)
    assert site.client.ask_stats().result(2).values["tokens"] == tokens


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["FIN", "RST"])
def test_i02_leaving_a_whole_answer_ends_its_work(site, leave, caplog) -> None:
    caplog.set_level("INFO", "strata.server")
    site.say(LONG)
    link = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000))
    until(lambda: busy(site) == 1)
    time.sleep(0.1)
    leave(link)
    until(lambda: busy(site) == 0)
    until(lambda: "disconnect" in caplog.text)
    assert b'finished_reason="abort"' in site.get("/metrics").body


def test_i03_leaving_while_the_prompt_is_read_ends_the_reading(site) -> None:
    site.say("never", reading_ms=50)
    link = begin(site, "/v1/completions", {"prompt": [5] * 64 * 50, "stream": True})
    until(lambda: busy(site) == 1)
    time.sleep(0.2)
    link.close()
    until(lambda: busy(site) == 0, 1)
    site.say("fine")
    assert site.complete().json["choices"][0]["text"] == "fine"


def test_i02_leaving_the_queue_frees_the_place(site) -> None:
    site.say(LONG, conversations=1, queue=1)
    first = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000, stream=True))
    until(lambda: busy(site) == 1)
    second = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000))
    until(lambda: busy(site) == 2)
    assert site.chat().status == 429
    second.close()
    until(lambda: busy(site) == 1)
    third = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000))
    until(lambda: busy(site) == 2)
    for link in (first, third):
        link.close()
    until(lambda: busy(site) == 0)


def test_i05_nothing_is_out_of_step_after_any_refusal(site) -> None:
    site.say(turn("a</think>\n\nfine", size=1, delay_ms=0.5))
    chance = random.Random(5)

    def one(kind: str) -> None:
        if kind == "leave":
            link = begin(site, "/v1/chat/completions", chat_body(stream=chance.random() < 0.5))
            time.sleep(chance.random() / 100)
            link.close()
        elif kind == "long":
            assert site.complete([5] * 40000).status == 400
        elif kind == "bad":
            assert site.chat(temperature=-1).status == 400
        else:
            began = time.monotonic()
            assert site.chat().message["content"] == "fine"
            assert time.monotonic() - began < 5

    kinds = [chance.choice(["leave", "long", "bad", "normal"]) for _ in range(200)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, kinds))
    until(lambda: busy(site) == 0 and not site.desk.busy)


def test_j01_no_answer_gets_anothers_words(site) -> None:
    count = 60
    site.say(
        *(turn(f"thought {i}</think>\n\nmarker {i}.", size=2, delay_ms=1) for i in range(count)),
        conversations=8,
        queue=64,
    )

    def one(number: int) -> tuple[str, str]:
        if number % 4 == 0:
            events = site.chat_stream()
            return events.delta("content"), events.values[0]["id"]
        if number % 4 == 1:
            reply = site.message(thinking={"type": "adaptive"}).json
            return reply["content"][1]["text"], reply["id"]
        if number % 4 == 2:
            reply = site.response().json
            return reply["output"][1]["content"][0]["text"], reply["id"]
        reply = site.chat().json
        return reply["choices"][0]["message"]["content"], reply["id"]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(one, range(count)))
    assert sorted(text for text, _ in found) == sorted(f"marker {i}." for i in range(count))
    assert len({name for _, name in found}) == count


def test_j07_exactly_so_many_are_kept_and_places_of_those_that_leave_are_free(site) -> None:
    site.say(turn("x" * 5000, size=1, delay_ms=5), conversations=2, queue=8)
    paths = (("/v1/chat/completions", chat_body(max_tokens=5000)), ("/v1/messages", message_body(max_tokens=5000)))
    kept = [begin(site, *paths[number % 2]) for number in range(10)]
    until(lambda: busy(site) == 10)

    def refused(number: int) -> bool:
        reply = site.post(*paths[number % 2])
        return reply.status == 429 and "retry-after" in reply.headers and "error" in reply.json

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(refused, range(500)))
    assert busy(site) == 10
    for link in kept[2:]:
        link.close()
    until(lambda: busy(site) == 2)
    again = [begin(site, *paths[0]) for _ in range(8)]
    until(lambda: busy(site) == 10)
    assert site.chat().status == 429
    for link in (*kept[:2], *again):
        link.close()
    until(lambda: busy(site) == 0)


def test_j07_a_full_queue_says_so_at_once(site) -> None:
    site.say(turn("x" * 25, size=1, delay_ms=5), conversations=4, queue=8)

    def one(number: int) -> tuple[int, dict, dict]:
        path, body = (
            ("/v1/chat/completions", chat_body(max_tokens=50)),
            ("/v1/messages", message_body(max_tokens=50)),
        )[number % 2]
        reply = site.post(path, body)
        return reply.status, reply.headers, reply.json

    with ThreadPoolExecutor(60) as pool:
        found = list(pool.map(one, range(60)))
    refused = [(headers, told) for status, headers, told in found if status == 429]
    assert {status for status, _, _ in found} == {200, 429}
    assert sum(status == 200 for status, _, _ in found) >= 12
    for headers, told in refused:
        assert headers["retry-after"] == "1"
        assert "error" in told
    until(lambda: busy(site) == 0)
    assert site.chat().status == 200


def test_j08_only_the_request_with_the_fault_fails(site) -> None:
    for kind in ("raise",):
        site.say(turn("a</think>\n\nb", fault=kind), "a</think>\n\nfine")
        assert site.chat().status == 500
        for _ in range(3):
            assert site.chat().message["content"] == "fine"
    assert site.client.status.restarts == 0
    assert b'strata:request_errors_total{kind="failed"' in site.get("/metrics").body


def test_j08_a_fault_of_the_servers_own_is_a_500_without_a_word_of_the_prompt(site, monkeypatch, caplog) -> None:
    from strata.server import rendering

    def broken(*_args: object) -> object:
        raise KeyError("the secret prompt")

    with monkeypatch.context() as patch:
        patch.setattr(rendering, "_marks", broken)
        reply = site.chat("the secret prompt")
    assert reply.status == 500
    assert "KeyError" in reply.error
    assert "secret" not in reply.error + caplog.text
    assert "rendering.py" in caplog.text
    assert site.chat().status == 200


def test_j08_a_fault_in_taking_the_answer_apart_is_that_answers(site, monkeypatch) -> None:
    from strata.text import OutputParser

    def broken(*_args: object) -> object:
        raise KeyError("secret")

    site.say("a</think>\n\nb")
    with monkeypatch.context() as patch:
        patch.setattr(OutputParser, "push", broken)
        assert site.chat().status == 500
        events = site.chat_stream()
        assert events.status == 500 or "error" in events.items[-2][1]
    for _ in range(3):
        assert site.chat().message["content"] == "b"
    site.script.rest()


def test_j08_a_fault_in_a_characters_bytes_is_that_answers(site, monkeypatch) -> None:
    from strata.text import Detokeniser

    site.say("a</think>\n\nb")
    with monkeypatch.context() as patch:
        patch.setattr(Detokeniser, "push_bytes", lambda *_: 1 / 0)
        assert site.chat().status == 500
        assert site.message().status == 500
    for _ in range(3):
        assert site.chat().message["content"] == "b"
    site.script.rest()


def test_a_slow_reader_holds_nobody_up(site) -> None:
    site.say(turn("x" * 20000, size=1), turn("quick</think>\n\nok"))
    link = begin(site, "/v1/chat/completions", chat_body(max_tokens=20000, stream=True))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    time.sleep(0.2)
    threads = threading.active_count()
    assert site.chat().message["content"] == "ok"
    assert threading.active_count() <= threads + 2
    link.close()
    until(lambda: busy(site) == 0)


def test_a_request_that_never_arrives_is_given_up(other_site) -> None:
    hasty = other_site(reading=0.3)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    assert b" 408 " in hasty.raw(head, 1).split(b"\r\n")[0]
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000):
        hasty.raw(garbage, 0.3)
    assert hasty.chat().status == 200


def test_a_head_that_never_ends_is_given_up(site, monkeypatch) -> None:
    from strata.server import connection

    monkeypatch.setattr(connection, "HEAD", 0.3)
    whole = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for before, begun in ((b"", b""), (b"", b"GET /live HTTP/1.1\r\nHo"), (whole, b"GET /li")):
        with socket.create_connection((site.host, site.port), timeout=3) as link:
            if before:
                link.sendall(before)
                receive(link)
            began = time.monotonic()
            link.sendall(begun)
            while link.recv(1 << 12):
                pass
            assert 0.2 < time.monotonic() - began < 2
    with socket.create_connection((site.host, site.port), timeout=3) as link:
        link.sendall(whole)
        receive(link)
        time.sleep(0.5)
        link.sendall(whole)
        assert receive(link).startswith(b"HTTP/1.1 200")


def test_a_broken_connection_does_not_keep_the_server_from_ending(other_site, monkeypatch) -> None:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    def broken(_self: object) -> None:
        raise h11.LocalProtocolError("in a state that knows no end")

    one = other_site()
    with socket.create_connection((one.host, one.port)) as link:
        link.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        receive(link)
        monkeypatch.setattr(H11Protocol, "shutdown", broken)
        began = time.monotonic()
        one.close()
        assert time.monotonic() - began < 5
