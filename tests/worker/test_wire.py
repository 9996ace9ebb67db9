import os
import socket
import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.worker import filename, wire
from strata.worker import messages as m
from strata.worker.errors import ProtocolError

ORDERS = [
    m.Start(1, m.ModelEngine("x.gguf", 3, {"slots": 2}), served=4),
    m.Start(1, m.ScriptedEngine("s.json", conversations=2)),
    m.Submit(
        (1, 2, 3), "a", {"temperature": 0.5, "logit_bias": {"7": -1.5}}, {"depth": 2}, (4,), 9,
        m.Grammar("regex", "a+", after=3), 5, -1, 2.5, keep=False, marks=(1,), salt="s", exact=True,
    ),
    m.Cancel("a"), m.AskStats(1), m.AskTrace(2), m.Resize(4, 1 << 40), m.Ping(3), m.Shutdown(),
]  # fmt: skip
REPORTS = [
    m.Hello(1, 2), m.Loading(1, 2), m.Ready("m", 1, 2, m.Limits(8, 64), "f", (1,), {"temperature": 1.0}, ("t",)),
    m.Progress("a", 1, 2, 1), m.Tokens("a", (m.Piece(1, b"\xe6\xbc", -0.5, ((1, -0.5), (2, -1.0))),)),
    m.Finished("a", "stop", m.Usage(1, 2, 3), 7), m.Failed("a", m.Kind.QUEUE_FULL, "full", numbers={"running": 1}),
    m.Stats(1, {"x": 1}), m.Trace(1, b"{}"), m.Pong(1, "idle"), m.Beat("working", {}), m.Fatal(m.Kind.FAILED, "x"),
    m.Resized(1, 2, "x", 3, 4, 5), m.Declined(1, m.Kind.BAD_REQUEST, "no", "RoomError"),
]  # fmt: skip


def test_all_messages_are_tried() -> None:
    assert {type(message) for message in ORDERS} == set(typing.get_args(m.Order))
    assert {type(message) for message in REPORTS} == set(typing.get_args(m.Report))


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_whole_whatever_the_pieces(sizes) -> None:
    for messages, frames in ((ORDERS, wire.orders()), (REPORTS, wire.reports())):
        data = b"".join(wire.encode(message) for message in messages)
        found = []
        place = turn = 0
        while place < len(data):
            size = sizes[turn % len(sizes)]
            found += frames.push(data[place : place + size])
            place, turn = place + size, turn + 1
        frames.end()
        assert found == messages


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "announces 1195725856 bytes"),
        (b"\x00\x00\x00\x00", "is no message"),
        (b"\x00\x00\x00\x01\xc1", "is no message"),
        (b"\x00\x00\x00\x03" + b"\x81\xa1a", "is no message"),
        (wire._HEAD.pack(wire.LARGEST + 1), "at most"),
        (b"\x00\x00\x08\x00" + b"\x91" * 2048, "is no message"),  # lists in lists in lists
    ],
    ids=["http", "empty", "reserved", "cut", "large", "deep"],
)
def test_garbage_is_one_clean_error(data, said) -> None:
    with pytest.raises(ProtocolError, match=said):
        list(wire.orders().push(data))


def test_a_message_of_the_other_direction_or_with_wrong_types_is_refused() -> None:
    with pytest.raises(ProtocolError):
        list(wire.orders().push(wire.encode(REPORTS[3])))
    for changed in ({"prompt": ["x"]}, {"prompt": [1], "temperatur": 1}, {}):
        body = msgspec.msgpack.encode({"type": "submit", **changed})
        with pytest.raises(ProtocolError):
            list(wire.orders().push(wire._HEAD.pack(len(body)) + body))


@pytest.mark.parametrize("name", ["мод ель/漢字.gguf", os.fsdecode(b"caf\xe9/m.gguf")])
def test_names_of_files_arrive_whatever_their_bytes(name) -> None:  # case M16
    start = m.Start(1, m.ModelEngine(filename.written(Path(name))))
    (found,) = wire.orders().push(wire.encode(start))
    assert isinstance(found, m.Start)
    assert isinstance(found.engine, m.ModelEngine)
    assert found.engine.path is not None
    assert filename.read(found.engine.path) == name
    filename.shown(name).encode()


def test_a_stream_that_ends_inside_a_frame_says_so() -> None:
    frames = wire.orders()
    assert not list(frames.push(wire.encode(m.Ping(1))[:-1]))
    with pytest.raises(ProtocolError, match="ended inside a frame"):
        frames.end()


def test_what_cannot_be_sent_is_refused_where_it_is_sent() -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        wire.encode(m.Submit((1,), sampling={"temperature": object()}))
    with pytest.raises(ProtocolError, match="cannot be sent"):
        wire.encode(m.Submit((1 << 70,)))
    with pytest.raises(ProtocolError, match="at most"):
        wire.encode(m.Submit((1,), salt="x" * (wire.LARGEST + 1)))


@pytest.mark.parametrize("changed", [
    {"sampling": {"seed": 1 << 70}},
    {"max_tokens": 1 << 70},
    {"prompt": (1 << 64,)},
    {"salt": "\ud800"},
    {"salt": "x" * (wire.LARGEST + 1)},
    {"keep": "no"},
    {"prompt": (True,)},
], ids=lambda changed: next(iter(changed)))  # fmt: skip
def test_a_request_that_cannot_be_sent_is_a_wrong_request(changed) -> None:  # case G02
    with pytest.raises(RequestError, match=r"^the request cannot be sent: ."):
        wire.encode_request(m.Submit(**{"prompt": (1,), **changed}))


def test_a_broken_connection_is_an_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert wire.receive(ours) == b""
