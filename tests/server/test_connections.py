"""How many connections there may be, and how long one may keep the server waiting."""

import contextlib
import json
import resource
import socket
import time

import pytest

from strata.server.connection import Connection, descriptors
from support.several import until
from support.site import chat_body, receive, turn

LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def small(other_site):
    """A server that takes few connections."""
    return other_site(connections=8, unread=1.0)


@pytest.fixture
def links(small):
    """Opens connections, and closes them all."""
    with contextlib.ExitStack() as stack:

        def connect(data: bytes = b"", buffer: int | None = None) -> socket.socket:
            link = stack.enter_context(socket.socket())
            if buffer is not None:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            link.settimeout(20)
            link.connect((small.host, small.port))
            link.sendall(data)
            return link

        yield connect
    until(lambda: len(small.desk.door) == 0)


def post(body: dict) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def drain(link: socket.socket) -> None:
    while link.recv(1 << 16):
        pass


def closed(link: socket.socket) -> bool:
    link.settimeout(0.05)
    try:
        return link.recv(1 << 16) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_the_connection_that_rests_longest_makes_room_for_a_new_one(small, links) -> None:
    resting = []
    for _ in range(8):
        resting.append(links(LIVE))
        assert receive(resting[-1]).startswith(b"HTTP/1.1 200")
    resting[0].sendall(LIVE)  # so it is the second that rests longest
    receive(resting[0])
    assert receive(links(LIVE)).startswith(b"HTTP/1.1 200")
    until(lambda: closed(resting[1]))
    for link in (resting[0], *resting[2:]):
        link.settimeout(20)
        link.sendall(LIVE)
        assert receive(link).startswith(b"HTTP/1.1 200")
    assert small.desk.door.dropped == 1
    assert small.desk.door.refused == 0


def test_connections_that_say_nothing_keep_nobody_out(small, links) -> None:
    for _ in range(30):
        links()
    links(b"GET /live HTTP/1.1\r\nHo")
    until(lambda: small.desk.door.dropped >= 23)
    for _ in range(10):
        assert receive(links(LIVE)).startswith(b"HTTP/1.1 200")
    assert len(small.desk.door) == 8


def test_where_all_work_this_machine_still_hears_how_the_server_is(small, links, monkeypatch) -> None:
    small.say(turn("x" * 60_000, size=1, delay_ms=20))
    for _ in range(8):
        links(post(chat_body(stream=True, max_tokens=20_000)))
    until(lambda: len(small.desk._runs) == 8)
    for path in ("/health", "/live"):
        reply = small.get(path)
        assert reply.status == 200
        assert reply.headers["connection"] == "close"
    for ask in (small.chat, small.message, lambda: small.get("/v1/models")):
        reply = ask()
        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        assert reply.headers["connection"] == "close"
        assert "as many connections" in reply.error
    monkeypatch.setattr(Connection, "local", False)
    found, link = b"", links()
    while part := link.recv(1 << 12):
        found += part
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b'"code": "too_many_connections"' in found
    assert small.desk.door.refused == 1
    assert len(small.desk._runs) == 8


def test_a_reader_that_takes_nothing_is_given_up(small, links) -> None:
    small.say(turn("x" * 1_500_000, size=100), turn("quick</think>\n\nok"))
    link = links(post(chat_body(stream=True, max_tokens=30_000)), buffer=4096)
    until(lambda: len(small.desk._runs) == 1)
    began = time.monotonic()
    assert small.chat().message["content"] == "ok"  # nobody else waits for it
    until(lambda: not small.desk._runs)
    assert time.monotonic() - began > 0.5
    small.script.rest()  # nor does the engine work for it
    with pytest.raises(ConnectionError):
        drain(link)


def test_a_reader_that_takes_little_is_not(small, links) -> None:
    small.say(turn("x" * 250_000, size=100, delay_ms=0.2))
    link = links(post(chat_body(stream=True, max_tokens=6000)), buffer=16384)
    found, began = b"", time.monotonic()
    while b"data: [DONE]" not in found:
        part = link.recv(4096)
        assert part, "it was given up"
        found += part
        time.sleep(0.02)
    assert time.monotonic() - began > 1  # longer than it may take nothing


def test_an_answer_in_one_piece_that_nobody_takes_is_given_up(small, links) -> None:
    body = json.dumps({"content": "a b " * 60_000, "with_pieces": True}).encode()
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    link = links(head + body, buffer=4096)
    until(lambda: len(small.desk.door) == 1)
    until(lambda: len(small.desk.door) == 0)
    assert link.fileno() >= 0


def test_the_system_is_asked_for_as_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        assert descriptors(600) == ""
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 600
        assert "--connections" in descriptors(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
