"""Requests at the edges of HTTP and JSON."""

import contextlib
import json
import socket
import time

import pytest

from strata.server.options import Arriving
from support.site import chat_body, message_body, number, receive

BODY = json.dumps(chat_body()).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "frequency_penalty", "typical_p"])
@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1" + "0" * 400, "1e999"])
def test_a_number_that_is_too_large_is_the_clients_mistake(site, field, value) -> None:
    for path, body in (("/v1/chat/completions", chat_body()), ("/v1/messages", message_body())):
        if path == "/v1/messages" and field not in {"temperature", "top_p"}:
            continue
        body.pop("temperature", None)
        raw = json.dumps(body)[:-1] + f', "{field}": {value}}}'
        reply = site.post(path, raw=raw.encode())
        assert reply.status == 400, reply.body
        assert "1e999" in value or field in reply.error
        assert value not in reply.error


GARBAGE = {
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no host": b"GET /live HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "long length": HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "encoding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "name": LIVE + b"a\0b: c\r\n\r\n",
    "target": b"GET /l\xc3\xa4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "noise": b"\x00\x01\x02 hello\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_http_is_an_error_in_the_documented_form(site, name) -> None:
    before = number(site, "strata:connections_garbled_total")
    head, _, body = site.raw(GARBAGE[name]).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_http")
    assert number(site, "strata:connections_garbled_total") == before + 1


def test_broken_chunks_to_a_route_that_refuses_leave_no_trace(site, caplog) -> None:
    head = b"POST /nix HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for pieces in ((head + b"zz\r\n",), (head + b"5\r\nhe", b"llo!!!\r\nzz\r\n")):
        with socket.create_connection((site.host, site.port), timeout=5) as link:
            for piece in pieces:
                link.sendall(piece)
                time.sleep(0.3)
            found = b""
            with contextlib.suppress(ConnectionResetError):
                while part := link.recv(1 << 16):
                    found += part
        assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
        assert found.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}], caplog.text


def test_tls_is_told_what_this_is(site) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)
    assert "not https" in json.loads(site.raw(hello).partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("between", [b"\r\n", b"\n", b"\r\n\r\n"])
def test_empty_lines_before_a_request_are_none(site, between) -> None:
    with socket.create_connection((site.host, site.port), timeout=5) as link:
        link.sendall(between)
        link.sendall(between + WHOLE)
        assert receive(link).startswith(b"HTTP/1.1 200")
        link.sendall(WHOLE + between + WHOLE)  # in one piece
        both = receive(link)
        while both.count(b"HTTP/1.1 200") < 2 or not both.endswith(b"}"):
            both += receive(link)


@pytest.mark.parametrize("head", [b"1.1\r\nContent-Length: 4", b"1.0\r\nConnection: keep-alive"], ids=["both", "1.0"])
def test_a_body_of_two_lengths_is_refused_and_nothing_is_read_behind_it(site, head) -> None:
    head = b"POST /tokenize HTTP/" + head + b"\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = site.raw(head + b'f\r\n{"content":"a"}\r\n0\r\n\r\n' + LIVE + b"\r\n")
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b" 200 OK" not in found
    assert b"length is not certain" in found


def test_s02_a_host_that_is_no_host_is_not_ours(site) -> None:
    for host in (
        "evil.example@localhost",
        "localhost/evil",
        "localhost#evil",
        "localhost?evil",
        "127.0.0.1:abc",
        "127.0.0.1:99999",
        "local\thost",
        "[localhost]",
        "[::1",
        "[::1]evil",
        "localhost:80:80",
    ):
        assert site.get("/v1/models", host=host).status in {400, 403}, host
    for host in ("localhost:", "[::1]:8080", "LOCALHOST.:80", "127.0.0.1:65535"):
        assert site.get("/v1/models", host=host).status == 200, host


def test_s02_an_origin_that_is_no_origin_is_not_ours(site) -> None:
    for origin in ("http://[::1", "http://[", "//", "http://", "x", "http://localhost:1@127.0.0.1"):
        assert site.get("/v1/models", origin=origin).status == 403, origin


def test_b14_who_asks_before_sending_too_much_is_told_at_once(other_site) -> None:
    small = other_site(body=2000)
    head = HEAD + b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n"
    found = small.raw(head, 3)
    assert found.startswith(b"HTTP/1.1 413")
    assert b"100 Continue" not in found


def test_all_that_arrives_is_bounded(other_site) -> None:
    bounded = Arriving(100_000)
    site = other_site(arriving=bounded)
    head = HEAD + b"Content-Length: 60000\r\n\r\n"
    with contextlib.ExitStack() as links:
        first = links.enter_context(socket.create_connection((site.host, site.port), timeout=5))
        first.sendall(head + b" " * 50_000)
        end = time.monotonic() + 20
        while bounded.now < 50_000:
            assert time.monotonic() < end
            time.sleep(0.01)
        refused = site.raw(head + b" " * 60_000)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in refused.lower()
        assert site.chat().status == 200, "a small one has room"
        first.sendall(b" " * 10_000)
        assert receive(first).startswith(b"HTTP/1.1 400")
    end = time.monotonic() + 20
    while bounded.now:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_address_for_a_proxy_is_the_same_route(site, other_site) -> None:
    own = f"http://localhost:{site.port}"

    def get(target: str, host: str = "localhost") -> bytes:
        return site.raw(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())

    assert get(f"{own}/live").startswith(b"HTTP/1.1 200")
    assert get(f"{own}/v1/models?beta=true").startswith(b"HTTP/1.1 200")
    assert get("http://evil.example/v1/models").startswith(b"HTTP/1.1 403"), "its name counts, not that of the header"
    assert get(f"{own}/nothing").startswith(b"HTTP/1.1 404")
    locked = other_site(keys={"a": "k"})
    bare = "GET http://localhost/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert locked.raw(bare.encode()).startswith(b"HTTP/1.1 401")


def test_a_long_method_is_not_repeated(site, caplog) -> None:
    caplog.set_level("INFO", "strata.server")
    found = site.raw(b"A" * 5000 + b" /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 405")
    assert len(found) < 1000
    assert "A" * 100 not in caplog.text


def test_a_byte_order_mark_is_left_out(site) -> None:
    assert site.post("/v1/chat/completions", raw=b"\xef\xbb\xbf" + BODY).status == 200


@pytest.mark.parametrize(
    ("escaped", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ude00 cut", "\ufffd cut"),
        (r"\ud83d\ude00 and \ud83d", "\U0001f600 and \ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud83d and \ud83d", "\\ud83d and \ufffd"),
        (r"\\\ud83d", "\\\ufffd"),
    ],
)
def test_c12_half_a_character_in_a_history_does_not_poison_it(site, escaped, read) -> None:
    raw = '{"messages": [{"role": "user", "content": "' + escaped + '"}]}'
    reply = site.post("/tokenize", raw=raw.encode())
    assert reply.status == 200, reply.body
    assert reply.json["tokens"] == site.tokens(messages=[{"role": "user", "content": read}])
    assert site.post("/v1/chat/completions", raw=raw.encode()).status == 200
