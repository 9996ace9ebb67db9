"""Connections: how many there may be, who has to go first, and how long one may keep the server waiting."""

import asyncio
import contextlib
import ipaddress
import json
import logging
import resource
import socket
import struct
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from strata.server.errors import ApiError

_log = logging.getLogger("strata.server")

HEAD = 20.0
"""Seconds in which the head of a request has to be there."""

SPARE = 16
"""Connections of this machine that are taken beyond the limit, for one request each, so that somebody can see what is
going on."""

BUFFER = 64 << 10
"""Bytes of an answer that wait here for a client to take them, before the answer has to wait."""

LEAST = 4 << 10
"""Bytes that a client which is behind has to take in the time it may take nothing."""

_FILES = 256
"""Descriptors for everything but connections."""

FULL = ApiError(
    503,
    "the server has as many connections open as it takes; try again in a moment",
    code="too_many_connections",
    retry=1,
)


class Door:
    """The connections of one server.

    Args:
        most: how many may be open.
        unread: seconds that a client may take nothing of what is sent to it.
    """

    def __init__(self, most: int, unread: float) -> None:
        self.most = most
        self.unread = unread
        self.refused = 0
        self.dropped = 0
        self.garbled = 0
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> type[asyncio.Protocol]:
        """What makes a connection, for uvicorn's configuration."""
        return cast("type[asyncio.Protocol]", partial(Connection, door=self))

    def enter(self, new: "Connection") -> bool:
        """A connection comes; returns whether it may stay. Where there is no room, the one that rests longest goes."""
        if len(self._open) >= self.most:
            resting = [one for one in self._open if one.resting]
            if resting:
                self.dropped += 1
                min(resting, key=lambda one: (one.partly, one.heard)).drop()
            elif new.local and len(self._open) < self.most + SPARE:
                new.spare()
            else:
                self.refused += 1
                return False
        self._open.add(new)
        return True

    def leave(self, one: "Connection") -> None:
        """A connection goes."""
        self._open.discard(one)


class Connection(H11Protocol):
    """Does not wait for ever: not for the head of a request, and not for a client that takes nothing.

    A body has a limit of its own (`strata.server.body`).
    """

    def __init__(self, *args: Any, door: Door, **more: Any) -> None:
        super().__init__(*args, **more)
        self.heard = 0.0
        self._door = door
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._waiting = 0

    # ---- what the door asks

    @property
    def resting(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or bool(self.cycle.response_complete)

    @property
    def partly(self) -> bool:
        """Whether a part of a request's head is there."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    @property
    def local(self) -> bool:
        """Whether it comes from this machine."""
        with contextlib.suppress(ValueError):
            return self.client is None or ipaddress.ip_address(self.client[0]).is_loopback
        return False

    def spare(self) -> None:
        """It is one beyond the limit: what it asks for is answered if it is about the server's health."""
        self.app_state = {**self.app_state, "spare": True}

    def drop(self) -> None:
        """It rests, and another one needs its place."""
        self._door.leave(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.shutdown()

    # ---- what happens

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request has to come, if there is room for it."""
        super().connection_made(transport)
        self.heard = self.loop.time()
        transport.set_write_buffer_limits(BUFFER)
        link = transport.get_extra_info("socket")
        if link is not None and link.family in {socket.AF_INET, socket.AF_INET6}:
            # The kernel keeps no more either, though its own buffers grow to megabytes.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 2 * BUFFER)
        if not self._door.enter(self):
            transport.write(_written(FULL))
            self.connections.discard(self)
            transport.close()
            return
        self._late = self.loop.call_later(HEAD, transport.close)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self.heard = self.loop.time()
        if self._late is not None and not self.partly:
            self._late.cancel()
            self._late = None
        elif self._late is None and self.partly:
            self._late = self.loop.call_later(HEAD, self.transport.close)

    def handle_events(self) -> None:
        """What has arrived; empty lines before a request, which old clients send behind a body, are none."""
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0].startswith((b"\r", b"\n")):
            waiting = self.conn._receive_buffer  # noqa: SLF001  # h11 has no other way to leave bytes out
            kept = bytes(waiting).lstrip(b"\r\n")
            waiting.maybe_extract_at_most(len(waiting))
            waiting += kept
        super().handle_events()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What arrived is no HTTP."""
        data = bytes(self.conn.trailing_data[0])
        told = "the request is not valid HTTP"
        if data.startswith(b"\x16\x03"):
            told = "this is http, and what arrived is the beginning of TLS; ask for http://, not https://"
        error = ApiError(400, told, code="invalid_http")
        self._door.garbled += 1
        _log.info("a connection is ended: %s", error)
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not begun and self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.write(_written(error))
        if self.cycle is not None:  # nobody hears what else there may be to say to this request
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """It has taken it."""
        super().resume_writing()
        self._forget()

    def on_response_complete(self) -> None:
        """An answer is written; whether it is taken is another matter."""
        self.heard = self.loop.time()
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch()

    def timeout_keep_alive_handler(self) -> None:
        """It rests for too long."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """End it once its request is answered; one that is broken already, at once."""
        try:
            super().shutdown()
        except h11.ProtocolError:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing comes any more."""
        self._door.leave(self)
        self._forget()
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(error)

    def _watch(self) -> None:
        if self._unread is None:
            self._waiting = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(self._door.unread, self._look)

    def _forget(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self) -> None:
        """Has the client taken anything since the last look? If not, nothing is kept for it any longer."""
        self._unread = None
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._waiting - waiting < LEAST:
            _log.info("a connection is ended: what was sent to it was not taken within %g s", self._door.unread)
            link = self.transport.get_extra_info("socket")
            if link is not None:  # the kernel need not keep what it has of it either
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif waiting:
            self._watch()


def _written(error: ApiError) -> bytes:
    """An answer to a request that is not read, or cannot be."""
    told = {"message": str(error), "type": error.type, "param": None, "code": error.code}
    body = json.dumps({"error": told}).encode()
    retry = "" if error.retry is None else f"retry-after: {error.retry}\r\n"
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nserver: strata\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
    )
    return head.encode() + body


def descriptors(most: int) -> str:
    """Have the system allow as many open files as the connections need; returns what is wrong if it does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + SPARE + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        able = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (able, hard))
        if able < wanted:
            return (
                f"the system allows {hard} open files, too few for {most} connections; raise the limit (ulimit -n), or "
                f"set --connections to {max(8, hard - SPARE - _FILES)}"
            )
    return ""
