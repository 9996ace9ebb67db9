"""One connection of a client that reads as slowly as it likes: HTTP/1.1 by hand, so that nothing is hidden."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field

RECEIVE = 4096
"""Bytes that the system may hold for a client; little, so that a slow one is felt by the server."""


class Lost(Exception):  # noqa: N818  # an answer that is lost, not an error of ours
    """The connection ended where it must not."""


@dataclass
class Head:
    """The head of an answer."""

    status: int
    headers: dict[str, str]


@dataclass
class Pace:
    """How a client reads: so many bytes, then a pause in seconds."""

    bite: int = 65536
    pause: float = 0.0


@dataclass
class Wire:
    """A connection, and what has come and not been used."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pace: Pace = field(default_factory=Pace)
    rest: bytearray = field(default_factory=bytearray)

    @classmethod
    async def open(cls, port: int) -> "Wire":
        """Connect."""
        link = socket.socket()
        try:
            link.setblocking(False)  # noqa: FBT003  # the function takes no names
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
            await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=link, limit=RECEIVE)
        except BaseException:
            link.close()
            raise
        return cls(reader, writer)

    async def send(self, data: bytes) -> None:
        """All of it."""
        self.writer.write(data)
        await self.writer.drain()

    async def more(self) -> None:
        """The next bite."""
        if self.pace.pause:
            await asyncio.sleep(self.pace.pause)
        data = await self.reader.read(self.pace.bite)
        if not data:
            raise Lost("the connection was closed in the middle of an answer")
        self.rest += data

    async def until(self, mark: bytes) -> bytes:
        """What comes before a mark, which is used up as well."""
        while (place := self.rest.find(mark)) < 0:
            await self.more()
        found = bytes(self.rest[:place])
        del self.rest[: place + len(mark)]
        return found

    async def exactly(self, size: int) -> bytes:
        """So many bytes."""
        while len(self.rest) < size:
            await self.more()
        found = bytes(self.rest[:size])
        del self.rest[:size]
        return found

    async def head(self) -> Head:
        """The head of the next answer."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Head(int(first.split(" ")[1]), headers)

    async def part(self, head: Head) -> bytes:
        """The next chunk of a chunked body, empty at its end; or the whole of another."""
        if head.headers.get("transfer-encoding") != "chunked":
            return await self.exactly(int(head.headers["content-length"]))
        size = int(await self.until(b"\r\n"), 16)
        data = await self.exactly(size)
        if await self.until(b"\r\n"):
            raise Lost("a chunk is not followed by the end of its line")
        return data

    async def body(self, head: Head) -> bytes:
        """All of a body."""
        if head.headers.get("transfer-encoding") != "chunked":
            return await self.part(head)
        found = bytearray()
        while data := await self.part(head):
            found += data
        return bytes(found)

    async def close(self, *, reset: bool = False) -> None:
        """End it, in order or as a machine does that is switched off."""
        if reset:
            link = self.writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def request(path: str, body: bytes) -> bytes:
    """A request as bytes."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
